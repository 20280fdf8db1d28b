'use strict';
// Documents and types say what is there.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const holdfast = require('..');
const { place } = require('./common.js');

const own = path.dirname(__dirname);

/** Runs all examples of a document, one after another, in one directory. */
function run(t, document, least) {
    const examples = [...fs.readFileSync(document, 'utf8').matchAll(/```js\n(.*?)```/gs)].map(([, example]) => example);
    assert.ok(examples.length >= least, `${document}: only ${examples.length} examples`);
    const dir = place(t);
    fs.mkdirSync(path.join(dir, 'node_modules'));
    fs.symlinkSync(own, path.join(dir, 'node_modules/holdfast'));
    for (const example of examples) {
        const program = `const assert = require('node:assert');(async () => {${example}})();`;
        execFileSync(process.execPath, ['--throw-deprecation', '-e', program], { cwd: dir, stdio: 'pipe' });
    }
}

test('the examples of README.md', (t) => run(t, path.join(own, 'README.md'), 2));

const bindings = path.join(own, '../../docs/BINDINGS.md');
test('the examples of docs/BINDINGS.md', { skip: !fs.existsSync(bindings) }, (t) => run(t, bindings, 1));

test('index.d.ts has the members of each class, and no others', () => {
    const text = fs.readFileSync(path.join(own, 'index.d.ts'), 'utf8');
    const members = (name, opening) => {
        const body = text.match(new RegExp(`^export class ${name}\\b[^{]*\\{\\n(.*?)^\\}`, 'ms'))[1];
        return new Set([...body.matchAll(opening)].map(([, member]) => member));
    };
    for (const name of ['Volume', 'FileHandle', 'Branch', 'Snapshot']) {
        const declared = members(name, /^ {4}(\[?[\w.]+\]?)[<(]/gm);
        const accessors = members(name, /^ {4}readonly (\w+):/gm);
        const there = Object.getOwnPropertyDescriptors(holdfast[name].prototype);
        const keys = Reflect.ownKeys(there).filter((key) => key !== 'constructor');
        // In Node 20 they have other descriptions.
        const symbol = (key) => `[Symbol.${key === Symbol.dispose ? 'dispose' : key === Symbol.asyncDispose ? 'asyncDispose' : 'other'}]`;
        const shown = (key) => (typeof key === 'symbol' ? symbol(key) : key);
        const methods = keys.filter((key) => typeof there[key].value === 'function').map(shown);
        assert.deepEqual(methods.sort(), [...declared].filter((member) => member !== 'constructor').sort(), name);
        for (const key of keys.filter((key) => there[key].get)) assert.ok(accessors.has(key), `${name}.${key}`);
        const statics = members(name, /^ {4}static (\w+)\(/gm);
        const made = Object.getOwnPropertyNames(holdfast[name]).filter((key) => typeof holdfast[name][key] === 'function');
        assert.deepEqual(made.sort(), [...statics].sort(), name);
    }
});
