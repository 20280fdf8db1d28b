'use strict';
// Builds the native part and puts it beside index.js.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const cargo = process.env.CARGO || 'cargo';
const how = ['build', '--release', '--locked', '--message-format=json-render-diagnostics'];
const built = spawnSync(cargo, how, { cwd: __dirname, stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 256 << 20 });
if (built.error) throw built.error;
if (built.status !== 0) process.exit(built.status ?? 1);

const made = built.stdout
    .toString()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
    .filter((said) => said.reason === 'compiler-artifact' && said.target.name === 'holdfast_node')
    .flatMap((said) => said.filenames);
const library = made.find((file) => file.endsWith('.so'));
if (!library) throw new Error('cargo has built no library');

// By another name first: a program may have the old one loaded.
const target = path.join(__dirname, 'holdfast.node');
fs.copyFileSync(library, `${target}.new`);
fs.renameSync(`${target}.new`, target);
