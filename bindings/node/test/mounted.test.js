'use strict';
// A volume that is mounted is reached through its mount, unless that is not wanted. $HOLDFAST is the program that mounts.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const { Volume } = require('..');
const { fails, place } = require('./common.js');

const PROGRAM = process.env.HOLDFAST;
const missing = !PROGRAM ? '$HOLDFAST names no program that mounts' : !fs.existsSync('/dev/fuse') && 'there is no /dev/fuse';

/** Calls `body` with an image, the place where it is mounted, and what keeps volumes to be closed before the unmount, also after a failure. */
async function mounted(t, body) {
    const dir = place(t);
    const [image, mnt] = [path.join(dir, 'volume.img'), path.join(dir, 'mnt')];
    await (await Volume.create(image, { size: 64 << 20 })).close();
    fs.mkdirSync(mnt);
    execFileSync(PROGRAM, ['mount', image, mnt]);
    const opened = [];
    const keep = (volume) => opened[opened.push(volume) - 1];
    try {
        await body(image, mnt, keep);
    } finally {
        for (const volume of opened) await volume.close();
        execFileSync(PROGRAM, ['umount', mnt]);
    }
}

test('a mounted volume is reached through its mount, or refused', { skip: missing }, async (t) => {
    await mounted(t, async (image, mnt, keep) => {
        const volume = keep(await Volume.open(image));
        assert.equal(volume.mountedAt, mnt);
        await volume.writeFile('/from-node', 'through the mount', { flush: true });
        assert.equal(fs.readFileSync(path.join(mnt, 'from-node'), 'utf8'), 'through the mount');
        fs.writeFileSync(path.join(mnt, 'from-outside'), 'seen');
        assert.equal(await volume.readFile('/from-outside', 'utf8'), 'seen');
        assert.deepEqual((await volume.readdir('/')).sort(), ['from-node', 'from-outside']);
        assert.equal((await volume.stat('/from-node')).ino, fs.statSync(path.join(mnt, 'from-node'), { bigint: true }).ino);
        await volume.close();
        const busy = await fails('EBUSY', Volume.open(image, { throughMount: false }));
        assert.ok(busy.message.includes(mnt), busy.message);
    });
});

test('branches and snapshots of a mounted volume', { skip: missing }, async (t) => {
    await mounted(t, async (image, mnt, keep) => {
        const volume = keep(await Volume.open(image));
        await volume.writeFile('/f', 'before');
        const before = await volume.snapshot('before');
        await volume.writeFile('/f', 'after');
        const was = keep(await before.open());
        assert.deepEqual([await was.readFile('/f', 'utf8'), was.mountedAt], ['before', mnt]);
        await was.close();
        const fork = await volume.fork('fork');
        assert.deepEqual((await volume.branches()).map((one) => one.name), ['main', 'fork']);
        await volume.rollback('before');
        assert.equal(await volume.readFile('/f', 'utf8'), 'before');
        // Node's name of EOPNOTSUPP.
        const refused = await fails('ENOTSUP', fork.open());
        assert.match(refused.message, /holdfast mount/);
        await fork.delete();
        await before.delete();
        assert.deepEqual(await volume.snapshots(), []);
        await volume.close();
    });
});
