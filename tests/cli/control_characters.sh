# Nothing from outside reaches the terminal as an escape.
tessera info --threads $'\033[31m1'
