"""`python -m skipscope`: the command line where its script is not installed."""

from skipscope.cli import main

main()
