"""`python -m consumer` is the command `acceptance-consumer`; both begin here."""

import signal
import sys


def main() -> None:
    """Run the command line; signals that arrive during its imports do no harm."""
    # Block SIGUSR1, which would end the process, until `toggle_debug_on_sigusr1` waits for it, and
    # SIGTERM until `run` has its handler; for all other commands the command line lets it through.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    try:
        from consumer.commands import cli  # noqa: PLC0415 - Ctrl-C may arrive during the import.
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    cli.main()


if __name__ == "__main__":
    main()
