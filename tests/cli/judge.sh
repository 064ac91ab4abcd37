# Prompt adherence: drawn clips, clips of tessera sample in a folder, planted mistakes, bad prompts.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera data shapes --judge --count 30 --split validation
mkdir clips
for i in 0 1 2; do tessera data shapes --count 1 --first $i -o clips/$i.y4m > nothing; done
echo "a green ring moving up" > clips/0.txt # planted
tessera data shapes --count 1 --first 1 | tail -n 1 | cut -c 9- > clips/1.txt
echo "a dog in a park" > clips/2.txt
tessera data clips --judge
tessera data clips --judge -v | grep 'not judged'
tessera data clips --judge --json | grep -A 3 '"direction"\|"perfect"\|"not_judged"'
rm clips/0.txt clips/1.txt
tessera data clips --judge
echo "exit $?"
# One file for each clip and its prompt, which the judge reads: a model of two steps knows nothing.
tessera train --preset tiny --frames 2 --height 16 --width 16 --steps 2 --validate-every 0 --out run -q >nothing
printf 'a red disc moving left\n\na blue ring moving up\r\n' > prompts.txt
tessera sample run --prompt "a red disc" --prompts prompts.txt --steps 2 -o samples/
ls samples
cat samples/*.txt
tessera data samples --judge --json | grep '"clips"'
tessera sample run --prompts prompts.txt --steps 2 -o samples/
echo "exit $?"
: > empty.txt
tessera sample run --prompts empty.txt --steps 2 -o more/
echo "exit $?"
tessera sample run --prompts nosuch.txt --steps 2 -o more/
echo "exit $?"
# The model of the repository does what a prompt says, with all keys and with an eighth of them.
model=$CASES/../../share/checkpoints/shapes
tessera sample "$model" --attention dense --prompt "a red disc moving left" --steps 10 -q -o dense/
tessera data dense --judge | head -n 4
tessera sample "$model" --attention dsv --density 0.125 --compensate 32 --cube 2x2x2 --prompt "a red disc moving left" --steps 10 -q -o sparse/
tessera data sparse --judge | head -n 4
