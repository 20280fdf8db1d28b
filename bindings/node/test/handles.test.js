'use strict';
// File handles.

const assert = require('node:assert/strict');
const { constants } = require('node:fs');
const test = require('node:test');
const { fails, inMemory } = require('./common.js');

test('reads and writes have a position, or are told one', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+');
    assert.deepEqual(await file.write('hello'), { bytesWritten: 5, buffer: 'hello' });
    assert.equal((await file.write(Buffer.from('__ world__'), 2, 6)).bytesWritten, 6);
    assert.equal((await file.write('J', 0)).bytesWritten, 1);
    assert.equal((await file.write(new Uint8Array([33]), { position: 11 })).bytesWritten, 1);
    const into = Buffer.from('..............');
    const { bytesRead, buffer } = await file.read(into, 1, 12, 0);
    assert.deepEqual([bytesRead, buffer], [12, into]);
    assert.equal(into.toString(), '.Jello world!.');
    assert.equal((await file.read(Buffer.alloc(4))).bytesRead, 1);
    assert.equal((await file.read(Buffer.alloc(4))).bytesRead, 0);
    assert.equal((await file.read({ buffer: into, position: 6n, length: 5 })).bytesRead, 5);
    assert.equal(into.toString('utf8', 0, 5), 'world');
    assert.equal((await file.read(into, { position: 100 })).bytesRead, 0);
    assert.equal((await file.read(new Uint32Array(2), null, null, 0)).bytesRead, 8);
    await fails('ERR_OUT_OF_RANGE', file.read(into, 15));
    await fails('ERR_OUT_OF_RANGE', file.read(into, 0, 15));
    await fails('ERR_OUT_OF_RANGE', file.read(into, 0, 1, -2));
    await fails('ERR_OUT_OF_RANGE', file.write(into, 1.5));
    await fails('ERR_INVALID_ARG_TYPE', file.write({}));
    await file.close();
    const read = await volume.open('/f');
    await fails('EBADF', read.write('x'));
    assert.equal(await read.readFile('utf8'), 'Jello world!');
    assert.deepEqual(await read.readFile(), Buffer.alloc(0));
    await read.close();
    const written = await volume.open('/f', 'w');
    await fails('EBADF', written.read(into));
    await written.writeFile('all of it');
    await written.close();
    assert.equal(await volume.readFile('/f', 'utf8'), 'all of it');
});

test('appending goes to the end, whoever else does', async (t) => {
    const volume = await inMemory(t);
    const files = await Promise.all([volume.open('/f', 'a'), volume.open('/f', constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND)]);
    const records = Array.from({ length: 200 }, (_, n) => `${n}`.padStart(9) + '\n');
    await Promise.all(records.map((record, n) => files[n % 2].write(record)));
    await Promise.all(files.map((file) => file.close()));
    const lines = (await volume.readFile('/f', 'utf8')).split(/(?<=\n)/);
    assert.deepEqual(lines.sort(), records.sort());
});

test('the bytes of a write are those of the moment of the call', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+');
    const bytes = Buffer.alloc(4 << 20, 'a');
    const writing = file.write(bytes, 0, bytes.length, 0);
    bytes.fill('b');
    assert.equal((await writing).bytesWritten, bytes.length);
    assert.ok((await file.readFile()).every((byte) => byte === 0x61));
    await file.close();
});

test('one handle is used by many calls at once', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+');
    const block = (n) => Buffer.alloc(4096, n % 256);
    const numbers = Array.from({ length: 300 }, (_, n) => n);
    await Promise.all(numbers.map((n) => file.write(block(n), 0, 4096, n * 4096)));
    const found = await Promise.all(numbers.map((n) => file.read(Buffer.alloc(4096), 0, 4096, n * 4096)));
    numbers.forEach((n) => assert.deepEqual(found[n].buffer, block(n), `block ${n}`));
    // Without a position each call goes on where another one has ended.
    const parts = await Promise.all(numbers.map(() => file.read(Buffer.alloc(4096))));
    assert.ok(parts.every((part) => part.bytesRead === 4096));
    assert.equal(new Set(parts.map((part) => part.buffer[0])).size, 256);
    assert.equal((await file.read(Buffer.alloc(1))).bytesRead, 0);
    await file.close();
});

test('a close waits for calls that are under way, and ends the handle', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+');
    const writing = Array.from({ length: 20 }, (_, n) => file.write(Buffer.alloc(1 << 20, n), 0, 1 << 20, n << 20));
    const closing = file.close();
    await fails('EBADF', file.read(Buffer.alloc(1)));
    await closing;
    assert.equal((await Promise.all(writing)).length, 20);
    assert.equal((await volume.stat('/f')).size, 20 << 20);
    await file.close();
    await fails('EBADF', file.stat());
    await fails('EBADF', file.sync());
});

test('fsync, its receipt, attributes', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+', 0o600);
    assert.equal(await file.receipt(), null);
    await file.write('held fast');
    await file.datasync();
    await file.sync();
    assert.match(await file.receipt(), /flush/);
    await file.chmod(0o640);
    await file.utimes(5, 6);
    const found = await file.stat();
    assert.deepEqual([found.mode, found.size, found.mtimeMs, found.isFile()], [0o100640, 9, 6000, true]);
    assert.equal(file.volume, volume);
    assert.equal(file.path, '/f');
    await file[Symbol.asyncDispose]();
    await fails('EBADF', file.stat());
});

test('the event loop goes on while calls are made', async (t) => {
    const volume = await inMemory(t, 256 << 20);
    let turns = 0;
    let done = false;
    const turn = () => {
        turns += 1;
        if (!done) setImmediate(turn);
    };
    const writing = volume.writeFile('/f', Buffer.alloc(64 << 20, 'x')).then(() => (done = true));
    setImmediate(turn);
    await writing;
    // A call on this thread would have left no turn before its answer.
    assert.ok(turns > 1, `${turns} turns`);
    assert.equal((await volume.stat('/f')).size, 64 << 20);
});
