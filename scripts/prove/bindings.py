#!/usr/bin/env python3
"""Runs the examples in Python of a document, and the documentation of the package, each in a directory of its own volume.

usage: bindings.py DOCUMENT DIRECTORY
"""

import doctest
import pathlib
import re
import subprocess
import sys

import holdfast

document, place = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
examples = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
if len(examples) < 2:
    sys.exit(f"{document}: only {len(examples)} examples in Python")
for number, example in enumerate(examples):
    image = place / f"doc-{number}.img"
    done = subprocess.run([sys.executable, "-W", "error", "-c", example.replace("work.img", str(image))], cwd=place)
    if done.returncode != 0:
        sys.exit(f"{document}: this example fails:\n{example}")
failed, tried = doctest.testmod(holdfast)
if failed or not tried:
    sys.exit(f"the documentation of the package: {failed} of {tried} fail")
print(f"  Python: {len(examples)} examples of the document, {tried} of the package")
