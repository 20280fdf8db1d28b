'use strict';
// What was acknowledged is there after a SIGKILL.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const path = require('node:path');
const readline = require('node:readline');
const test = require('node:test');
const { Volume } = require('..');
const { place } = require('./common.js');

const LEN = 700;

const record = (number) => String(number).padEnd(LEN, '.');

/** Writes records until it is killed, and says the number of each whose fsync has returned. */
async function write(image) {
    const { writeSync } = require('node:fs');
    const volume = await Volume.open(image);
    const file = await volume.open('/records', 'a');
    let number = Math.floor((await file.stat()).size / LEN);
    await file.truncate(number * LEN);
    for (;;) {
        await volume.writeFile('/new', String(number), { flush: true });
        await volume.rename('/new', `/file-${number}`);
        await volume.syncDir('/');
        await file.write(record(number));
        await file.sync();
        number += 1;
        writeSync(1, `${number}\n`);
    }
}

/** Lets a program write until it has acknowledged `more` records, and kills it; the number that it said last. */
async function killedAfter(image, more) {
    const child = spawn(process.execPath, [__filename, image], { stdio: ['ignore', 'pipe', 'inherit'] });
    const gone = new Promise((resolve) => child.on('exit', (_, signal) => resolve(signal)));
    let said = 0;
    let heard = 0;
    for await (const line of readline.createInterface({ input: child.stdout })) {
        said = Number(line);
        heard += 1;
        if (heard === more) child.kill('SIGKILL');
    }
    assert.equal(await gone, 'SIGKILL');
    return said;
}

async function acknowledged(t) {
    const image = path.join(place(t), 'volume.img');
    await (await Volume.create(image, { size: 128 << 20 })).close();
    let before = 0;
    for (const more of [1, 30, 77, 100]) {
        const said = await killedAfter(image, more);
        assert.ok(said >= before + more, `${said} after ${before} and ${more}`);
        const volume = await Volume.open(image);
        const content = await volume.readFile('/records', 'utf8');
        for (let number = 0; number < said; number++) {
            assert.equal(content.slice(number * LEN, (number + 1) * LEN), record(number));
            assert.equal(await volume.readFile(`/file-${number}`, 'utf8'), String(number));
        }
        // Nobody wrote these.
        assert.ok(content.length < (said + 3) * LEN);
        assert.ok(!(await volume.exists(`/file-${said + 3}`)));
        await volume.close();
        before = said;
    }
}

if (process.argv[2]) write(process.argv[2]);
else test('every acknowledged record is there', acknowledged);
