"""`report`: the acceptance records of a time range as one self-contained HTML page."""
