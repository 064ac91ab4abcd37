# Aliases; the build itself is CMake's (see CMakePresets.json).
.PHONY: all test full bench demo fuzz format clean
all:
	cmake --preset release && cmake --build --preset release
test:
	scripts/test
full:
	scripts/test --full
bench: all
	build/release/bin/tessera bench --file bench/standard.txt
demo:
	scripts/demo
fuzz:
	scripts/fuzz
format:
	tools/format --fix
clean:
	rm -rf build
