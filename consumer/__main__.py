"""`python -m consumer` is the command `acceptance-consumer`; both begin here."""

import signal
import sys


def main() -> None:
    """Run the command line, safe from signals that come while it is imported."""
    # Until somebody waits for it (`logs.switch_by_signal`), it is kept instead of killing us.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        from consumer.commands import cli  # noqa: PLC0415 - takes a while, in which Ctrl-C may come.
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    cli.main()


if __name__ == "__main__":
    main()
