# Without a command the help goes to stdout, and that is no failure.
tessera | sed 's/^tessera [0-9.]*:/tessera N:/'
exit "${PIPESTATUS[0]}"
