"""`schema`: print a published JSON Schema."""

import click

from schemas import published


@click.command("schema")
@click.argument("name", metavar="NAME", type=click.Choice(published.names()))
def command(*, name: str) -> None:
    """Print a published JSON Schema.

    NAME is acceptance-record, dead-letter or response-event.
    """
    click.echo(published.text(name), nl=False)
