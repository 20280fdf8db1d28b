'use strict';
// What tests share.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { Volume } = require('..');

/** A directory of the host that is gone when the test is over. */
function place(t) {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-node-'));
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    return dir;
}

/** A volume in memory that is closed when the test is over. */
async function inMemory(t, size = 64 << 20) {
    const volume = await Volume.inMemory(size);
    t.after(() => volume.close());
    return volume;
}

/** Expects that a call fails with this code. */
async function fails(code, promise) {
    const error = await promise.then(
        () => assert.fail(`it has worked, and ${code} was to come`),
        (error) => error,
    );
    assert.equal(error.code, code, error.stack);
    return error;
}

module.exports = { fails, inMemory, place };
