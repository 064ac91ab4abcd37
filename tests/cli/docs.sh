# docs/cli.md is what the tables say.
diff "$CASES/../../docs/cli.md" <(tessera help --markdown)
