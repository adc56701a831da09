"""Prints the processor features that functions of a program need, as iced-x86's decoder knows them.

usage: needs.py CODE FUNCTIONS WANTED

CODE holds machine code. Each line of FUNCTIONS is the address of a function, its offset in CODE, its size, and its
name. The output has a line for each function that WANTED lists: its name, and the features of its instructions and of
those of the functions that it calls, without Go's runtime, which grows the stack.
"""
import sys

from iced_x86 import CpuidFeature, Decoder, FlowControl

names = {value: name for name, value in vars(CpuidFeature).items() if name.isupper()}
code = open(sys.argv[1], "rb").read()
functions = {}
for line in open(sys.argv[2]):
    address, offset, size, name = line.split()
    functions[int(address)] = (int(offset), int(size), name)

decoded = {}


def decode(address):
    """Returns the features of a function's instructions, and the addresses that it calls."""
    if address not in decoded:
        offset, size, name = functions[address]
        features, called = set(), set()
        for instruction in Decoder(64, code[offset:offset + size], ip=address):
            if instruction.is_invalid:
                sys.exit(f"{name}: invalid instruction at {instruction.ip - address:#x}")
            features.update(names[f] for f in instruction.cpuid_features())
            if instruction.flow_control in (FlowControl.CALL, FlowControl.UNCONDITIONAL_BRANCH):
                target = instruction.near_branch_target
                if not address <= target < address + size and not functions[target][2].startswith("runtime."):
                    called.add(target)
        decoded[address] = features, called
    return decoded[address]


def needs(address, seen):
    if address in seen:
        return set()
    seen.add(address)
    features, called = decode(address)
    return features.union(*(needs(c, seen) for c in called))


wanted = set(open(sys.argv[3]).read().split())
for address, (_, _, name) in functions.items():
    if name in wanted:
        print(name, *sorted(needs(address, set())))
