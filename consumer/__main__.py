"""`python -m consumer` is the command `acceptance-consumer`."""

from consumer.cli import main

main()
