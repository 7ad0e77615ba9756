"""`schema`: print a published JSON Schema."""

import click

from schemas import published


@click.command("schema")
@click.argument("name", type=click.Choice(published.names()))
def command(*, name: str) -> None:
    """Print a published JSON Schema."""
    click.echo(published.text(name), nl=False)
