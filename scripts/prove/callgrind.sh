#!/usr/bin/env bash
# Instructions that tracking changes and formatting commits cost (M3): `holdfast-dev bench tracking` under callgrind
# with each position of the switch, for sparse changes and several commit rhythms. Needs no mount. Asserts nothing:
# prints what was counted, and ratios. Only what lies between the prepared volume and the last commit is counted.
# Instructions are told apart by address with the inlined functions at each (addr2line), so inlining hides nothing.
# usage: callgrind.sh [bench tracking options, e.g. --node 16k]
#
# What belongs to which part, in one place: extended regular expressions, searched in "name file" of every function
# on the inline stack of an instruction; the first part that matches, in this order, has it. (An inlined function has
# its short name only, so files tell more than names.) Calls into the standard library and libc count for the caller;
# calls of our own functions count only if those match themselves.
TRACKING='crates/store/src/cache/(dirty[.]rs|frame[.]rs)'
FORMATTING='crates/store/src/(commit[.]rs|cache/freeze[.]rs|journal/mod[.]rs)|crates/format/src/journal/'
# Of formatting: the bytes of the records themselves being copied, which every position must do; counted apart.
COPYING='mem(cpy|move|set|cmp)|copy_nonoverlapping|copy_from_slice'
# One run each: workload, items, items between two commits.
RUNS='creates:1000:1 creates:1000:10 creates:1000:1000 overwrites:10000:100 overwrites:10000:10000'
# The function that is counted, with everything it calls on its own thread.
MEASURED='*holdfast_bench::mechanisms::m3::measured*'

. "$(dirname "$0")/lib.sh"
need_dev
bash "$(dirname "$0")/../need.sh" valgrind=valgrind addr2line=binutils python3=python3
RUNS=${CALLGRIND_RUNS:-$RUNS}
for run in $RUNS; do
    IFS=: read -r workload items per_commit <<<"$run"
    for switch in ranges bitmap whole; do
        out=$WORK/$run.$switch
        # A fair scheduler keeps the background threads from being starved: only one thread runs at a time.
        valgrind --tool=callgrind --dump-instr=yes --dump-line=no --compress-pos=no --compress-strings=no --fair-sched=try \
            --collect-atstart=no --toggle-collect="$MEASURED" --callgrind-out-file="$out.out" \
            "$HOLDFAST_DEV" bench tracking --workload "$workload" --items "$items" --per-commit "$per_commit" --dirty "$switch" "$@" \
            >"$out.json" 2>"$out.log" || { tail -n 20 "$out.log"; fail "callgrind of $run with dirty=$switch"; }
        say "  counted: $run dirty=$switch"
    done
done

cat >"$WORK/sum.py" <<'P'
"""Sums instructions of each part from callgrind's dumps."""
import collections, json, os, re, subprocess, sys
work, program, runs, *patterns = sys.argv[1:]
names = ["tracking", "formatting", "copying"]
patterns = [re.compile(p) for p in patterns]
copying = patterns[2]

def parse(path):
    """Own cost of each address of the program, calls from addresses, own cost elsewhere."""
    own, calls, elsewhere = collections.Counter(), [], 0
    ob, fn, cob, cfn, after_call, total = "", "", "", "", False, 0
    first = {}
    for line in open(path, errors="replace"):
        line = line.rstrip("\n")
        if line.startswith("ob="): ob = line[3:]
        elif line.startswith("fn="): fn, cob = line[3:], ob
        elif line.startswith("cob="): cob = line[4:]
        elif line.startswith("cfn="): cfn = line[4:]
        elif line.startswith("calls="): after_call = True
        elif line.startswith("0x"):
            address, *_, cost = line.split()
            address, cost = int(address, 16), int(cost)
            ours = os.path.realpath(ob) == os.path.realpath(program)
            if after_call:
                after_call = False
                if ours: calls.append((address, os.path.realpath(cob) == os.path.realpath(program), cfn, cost))
                cob = ob
                continue
            total += cost
            if ours:
                own[address] += cost
                first[fn] = min(first.get(fn, address), address)
            else: elsewhere += cost
        elif line and line[0] in "+-*": raise SystemExit("compressed positions in " + path)
    return own, calls, first, total

def bias(first):
    """Where the program was loaded: callgrind counts in the process, symbols count in the file."""
    table = {}
    for line in subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, _, rest = line.partition(" ")
        kind, _, name = rest.partition(" ")
        if kind in "tT" and address: table.setdefault(name, set()).add(int(address, 16))
    votes = collections.Counter()
    for name, address in first.items():
        for symbol in table.get(name, ()):
            # A function's first counted instruction is mostly its first one; pages keep their low bits.
            if (address - symbol) % 4096 == 0: votes[address - symbol] += 1
    if not votes: raise SystemExit("the program's load address is not to be found: no symbols?")
    return votes.most_common(1)[0][0]

stacks = {}
def look_up(addresses, bias):
    addresses = [a for a in addresses if a - bias not in stacks]
    text = "".join(f"{a - bias:#x}\n" for a in addresses)
    out = subprocess.run(["addr2line", "-a", "-i", "-f", "-C", "-e", program], input=text, capture_output=True, text=True, check=True).stdout
    current, is_name = None, True
    for line in out.splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line):
            current = stacks.setdefault(int(line, 16), []); is_name = True
        else:
            if is_name: current.append(line)
            else: current[-1] += " " + line
            is_name = not is_name

def part(frames):
    for at, pattern in enumerate(patterns[:2]):
        if any(pattern.search(frame) for frame in frames): return at
    return None

def count(path):
    own, calls, first, total = parse(path + ".out")
    if not total: raise SystemExit(path + ": nothing was counted; is the measured function still named so?")
    shift = bias(first)
    look_up(sorted(set(own) | {a for a, *_ in calls} | set(first.values())), shift)
    sums, by_name = [0, 0, 0], collections.Counter()
    for address, cost in own.items():
        frames = stacks[address - shift]
        which = part(frames)
        if which is None: continue
        # The outermost function of the part: what is inlined into it is its own.
        name = [frame for frame in frames if patterns[which].search(frame)][-1]
        if which == 1 and any(copying.search(frame) for frame in frames): which = 2
        sums[which] += cost
        by_name[names[which], re.sub(r" \S*/(crates/\S+?):.*", r" (\1)", name)] += cost
    for address, ours, callee, cost in calls:
        which = part(stacks[address - shift])
        if which is None: continue
        if ours:
            source = stacks[first[callee] - shift][-1] if callee in first else callee
            if "/rustc/" not in source and "/library/" not in source: continue
        if which == 1 and copying.search(callee): which = 2
        sums[which] += cost
        by_name[names[which], callee + " (called)"] += cost
    return sums, total, by_name

def ratio(one, other): return f"{one / other:.2f}" if other else "-"
lines = []
for run in runs.split():
    result = {}
    for switch in ("ranges", "bitmap", "whole"):
        sums, total, by_name = count(f"{work}/{run}.{switch}")
        result[switch] = (sums, total)
        c = json.loads(open(f"{work}/{run}.{switch}.json").readline())
        print(f"\n{run} dirty={switch}: {c['commits']} commits, {c['commit_nodes']} nodes and {c['commit_ranges']} ranges logged, "
              f"{c['commit_range_bytes']} bytes, {c['checkpoints']} checkpoints")
        for (where, name), cost in by_name.most_common(8):
            print(f"  {cost:>14,}  {where:10}  {name[:110]}")
    for switch, (sums, total) in result.items():
        lines.append(f"{run:24} {switch:7} {sums[0]:>13,} {sums[1]:>13,} {sums[0] + sums[1]:>13,} {sums[2]:>13,} {total:>15,} "
                     f"{100 * (sums[0] + sums[1]) / total:>6.2f}% {100 * sum(sums) / total:>6.2f}%")
    ranges, bitmap = result["ranges"][0], result["bitmap"][0]
    lines.append(f"{run:24} bitmap over ranges: tracking {ratio(bitmap[0], ranges[0])}, formatting {ratio(bitmap[1], ranges[1])}, "
                 f"both {ratio(bitmap[0] + bitmap[1], ranges[0] + ranges[1])} (wanted: at least 3), with copying {ratio(sum(bitmap), sum(ranges))}")
print(f"\n{'workload:items:commit':24} {'dirty':7} {'tracking':>13} {'formatting':>13} {'both':>13} {'copying':>13} {'all of the work':>15} {'both':>7} {'+copy':>7}")
print("\n".join(lines))
P
python3 "$WORK/sum.py" "$WORK" "$(readlink -f "$HOLDFAST_DEV")" "$RUNS" "$TRACKING" "$FORMATTING" "$COPYING"
say "callgrind: done"
