'use strict';
// The life of a volume, its snapshots and branches.

const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const { pathToFileURL } = require('node:url');
const { Volume } = require('..');
const { fails, inMemory, place } = require('./common.js');

test('the life of a volume', async (t) => {
    const image = path.join(place(t), 'volume.img');
    const volume = await Volume.create(image, { size: 64 << 20, label: 'notes' });
    const exists = await fails('EEXIST', Volume.create(image, { size: 64 << 20 }));
    assert.deepEqual([exists.path, exists.errno], [image, -17]);
    const busy = await fails('EBUSY', Volume.open(image));
    assert.match(busy.message, /in use by process/);
    const info = await volume.info();
    assert.deepEqual([info.label, info.size, info.uuid.length, info.nodeSize], ['notes', 64 << 20, 16, 16384]);
    const space = await volume.statfs();
    assert.ok(space.blocks > space.bavail && space.bavail > 0 && space.bsize === 4096 && space.ffree > 0);
    const file = await volume.open('/f', 'w');
    await file.write('kept');
    await volume.sync();
    assert.deepEqual([volume.closed, volume.mountedAt], [false, null]);
    await volume.close();
    await volume.close();
    assert.equal(volume.closed, true);
    await fails('EBADF', file.write('x'));
    await fails('EBADF', volume.readFile('/f'));
    await fails('EBADF', volume.sync());
    const again = await Volume.open(pathToFileURL(image), { readOnly: true });
    assert.equal(await again.readFile('/f', 'utf8'), 'kept');
    await fails('EROFS', again.writeFile('/g', 'x'));
    again[Symbol.dispose]();
    await fails('EBADF', again.readFile('/f'));
    const buffered = await Volume.open(Buffer.from(image));
    await buffered[Symbol.asyncDispose]();
    await fails('ENOENT', Volume.open(`${image}.none`));
    fs.writeFileSync(`${image}.junk`, 'junk'.repeat(10000));
    const junk = await fails('EUCLEAN', Volume.open(`${image}.junk`));
    assert.equal(junk.errno, -117);
    await fails('ERR_INVALID_ARG_TYPE', Volume.create(`${image}.new`, {}));
    const small = await fails('EINVAL', Volume.create(`${image}.new`, { size: 5 }));
    assert.match(small.message, /^EINVAL: .* at least/);
    assert.ok(!fs.existsSync(`${image}.new`));
    assert.throws(() => new Volume(), TypeError);
});

test('a program that ends closes its volumes', async (t) => {
    const image = path.join(place(t), 'volume.img');
    const program = `
        const { Volume } = require(${JSON.stringify(path.dirname(__dirname))});
        Volume.create(${JSON.stringify(image)}, { size: 64 << 20 }).then(async (volume) => {
            await volume.writeFile('/f', 'kept');
            process.exit(0);
        });`;
    execFileSync(process.execPath, ['-e', program]);
    const volume = await Volume.open(image);
    assert.equal(await volume.readFile('/f', 'utf8'), 'kept');
    await volume.close();
});

test('a volume that is forgotten is closed, and a warning says so', async (t) => {
    const image = path.join(place(t), 'volume.img');
    const program = `
        const { Volume } = require(${JSON.stringify(path.dirname(__dirname))});
        (async () => {
            await (await Volume.create(${JSON.stringify(image)}, { size: 64 << 20 })).writeFile('/f', 'kept');
            const warned = new Promise((resolve) => process.on('warning', resolve));
            const collecting = setInterval(gc, 1);
            console.log((await warned).code);
            clearInterval(collecting);
            for (;;) {
                try {
                    const again = await Volume.open(${JSON.stringify(image)});
                    console.log(await again.readFile('/f', 'utf8'));
                    return again.close();
                } catch (error) {
                    if (error.code !== 'EBUSY') throw error;
                }
            }
        })();`;
    const ended = spawnSync(process.execPath, ['--expose-gc', '-e', program], { encoding: 'utf8', timeout: 120_000 });
    assert.equal(ended.stdout, 'HOLDFAST_UNCLOSED\nkept\n', ended.stderr);
});

test('snapshots and rollback', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/f', 'one');
    const before = await volume.snapshot('before');
    assert.ok(Math.abs(before.created - Date.now()) < 300_000);
    await fails('EEXIST', volume.snapshot('before'));
    await volume.writeFile('/f', 'two');
    const was = await before.open();
    assert.equal(await was.readFile('/f', 'utf8'), 'one');
    await fails('EROFS', was.writeFile('/f', 'x'));
    await was.close();
    await volume.rollback(before, { keep: 'after' });
    assert.equal(await volume.readFile('/f', 'utf8'), 'one');
    assert.deepEqual((await volume.snapshots()).map((one) => one.name), ['before', 'after']);
    const [, after] = await volume.snapshots();
    await after.rename('later');
    await after.delete();
    assert.deepEqual((await volume.snapshots()).map((one) => one.name), ['before']);
    await fails('ENOENT', volume.branch('none'));
    await fails('ENOENT', volume.rollback('none'));
});

test('forks', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/f', 'one');
    const fork = await volume.fork('trial');
    const trial = await fork.open();
    await trial.writeFile('/f', 'tried');
    await fails('EBUSY', fork.open());
    await trial.close();
    assert.equal(await volume.readFile('/f', 'utf8'), 'one');
    assert.deepEqual((await volume.branches()).map((one) => one.name), ['main', 'trial']);
    const main = await volume.branch();
    assert.equal(main.name, 'main');
    await main.promote(fork);
    assert.equal(await volume.readFile('/f', 'utf8'), 'tried');
    const late = await (await volume.snapshot('base')).fork('late');
    await volume.writeFile('/g', 'changed since');
    await fails('EAGAIN', main.promote(late));
    await late.rename('later');
    assert.equal((await volume.branch('later')).name, 'later');
    await main.promote(late, { keep: 'was', replace: true });
    assert.ok(!(await volume.exists('/g')));
    await (await volume.fork('dead')).delete();
    assert.deepEqual((await volume.branches()).map((one) => one.name), ['main']);
});

test('a branch and a snapshot are opened by name', async (t) => {
    const image = path.join(place(t), 'volume.img');
    const volume = await Volume.create(image, { size: 64 << 20 });
    await volume.writeFile('/f', 'main');
    await volume.snapshot('s');
    await volume.fork('b');
    await volume.close();
    const branch = await Volume.open(image, { branch: 'b' });
    await branch.writeFile('/f', 'b');
    assert.equal((await branch.branch()).name, 'b');
    await branch.close();
    const snapshot = await Volume.open(image, { branch: 'main', snapshot: 's' });
    assert.equal(await snapshot.readFile('/f', 'utf8'), 'main');
    await snapshot.close();
    await fails('ENOENT', Volume.open(image, { branch: 'none' }));
});

test('many files at once, by two volumes and a worker', async (t) => {
    const dir = place(t);
    const [one, two] = [await inMemory(t), await inMemory(t)];
    const { Worker } = require('node:worker_threads');
    const image = path.join(dir, 'volume.img');
    const worker = new Worker(
        `const { Volume } = require(${JSON.stringify(path.dirname(__dirname))});
        Volume.create(${JSON.stringify(image)}, { size: 64 << 20 }).then(async (volume) => {
            for (let n = 0; n < 100; n++) await volume.writeFile('/' + n, String(n));
        });`,
        { eval: true },
    );
    const ended = new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject));
    await Promise.all(
        Array.from({ length: 300 }, async (_, n) => {
            const volume = n % 2 ? one : two;
            await volume.writeFile(`/${n}`, `${n}`.repeat(500), { flush: n % 20 === 0 });
            assert.equal(await volume.readFile(`/${n}`, 'utf8'), `${n}`.repeat(500));
        }),
    );
    assert.equal((await one.readdir('/')).length + (await two.readdir('/')).length, 300);
    assert.equal(await ended, 0);
    // A worker that ends closes its volumes.
    const volume = await Volume.open(image);
    assert.equal((await volume.readdir('/')).length, 100);
    await volume.close();
});
