# The other two shells can read their completions, where they are installed.
tessera help --completion zsh >_tessera
tessera help --completion fish >tessera.fish
head -n 1 _tessera tessera.fish
if command -v zsh >/dev/null; then zsh -n _tessera; fi
if command -v fish >/dev/null; then fish -n tessera.fish; fi
