'use strict';
// What POSIX says of files and names, in the manner of pjdfstest.

const assert = require('node:assert/strict');
const { constants } = require('node:fs');
const test = require('node:test');
const { fails, inMemory } = require('./common.js');

test('files are made, made only if they are new, and replaced', async (t) => {
    const volume = await inMemory(t);
    await fails('ENOENT', volume.open('/f', 'r+'));
    await volume.writeFile('/f', 'one\n', { flag: 'wx', mode: 0o600 });
    assert.equal((await volume.stat('/f')).mode, 0o100600);
    await fails('EEXIST', volume.writeFile('/f', 'x', { flag: 'wx' }));
    await fails('EEXIST', volume.open('/f', constants.O_RDWR | constants.O_CREAT | constants.O_EXCL));
    await volume.appendFile('/f', 'two\n');
    assert.equal(await volume.readFile('/f', 'utf8'), 'one\ntwo\n');
    assert.deepEqual(await volume.readFile('f'), Buffer.from('one\ntwo\n'));
    await volume.writeFile('/f', new Uint16Array([0x4241]), { flush: true });
    assert.equal(await volume.readFile('/f', { encoding: 'latin1' }), 'AB');
    await volume.writeFile('/f', 'é', 'latin1');
    assert.deepEqual(await volume.readFile('/f'), Buffer.from([0xe9]));
    await volume.symlink('none', '/link');
    await fails('EEXIST', volume.open('/link', 'wx'));
    await fails('ELOOP', volume.open('/link', constants.O_RDONLY | constants.O_NOFOLLOW));
});

test('of many that make one file, one does', async (t) => {
    const volume = await inMemory(t);
    const tried = await Promise.allSettled(Array.from({ length: 20 }, (_, n) => volume.writeFile('/f', `${n}`, { flag: 'wx' })));
    assert.equal(tried.filter((one) => one.status === 'fulfilled').length, 1);
    assert.ok(tried.every((one) => one.status === 'fulfilled' || one.reason.code === 'EEXIST'));
    const winner = tried.findIndex((one) => one.status === 'fulfilled');
    assert.equal(await volume.readFile('/f', 'utf8'), `${winner}`);
});

test('a rename replaces what is there', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/a', 'a');
    await volume.writeFile('/b', 'b');
    const before = (await volume.stat('/a')).ino;
    await volume.rename('/a', '/b');
    assert.equal(await volume.readFile('/b', 'utf8'), 'a');
    assert.equal((await volume.stat('/b')).ino, before);
    await fails('ENOENT', volume.stat('/a'));
    await volume.mkdir('/d');
    await fails('EINVAL', volume.rename('/d', '/d/e'));
    await fails('EISDIR', volume.rename('/b', '/d'));
    await fails('ENOTDIR', volume.rename('/d', '/b'));
    const error = await fails('ENOENT', volume.rename('/a', '/c'));
    assert.deepEqual([error.path, error.dest, error.syscall], ['/a', '/c', 'rename']);
});

test('an open file lives on without a name', async (t) => {
    const volume = await inMemory(t);
    const file = await volume.open('/f', 'w+');
    await file.write('still here');
    await volume.unlink('/f');
    await fails('ENOENT', volume.readFile('/f'));
    assert.equal((await file.stat()).nlink, 0);
    const { bytesRead, buffer } = await file.read(Buffer.alloc(20), 0, 20, 0);
    assert.equal(buffer.toString('utf8', 0, bytesRead), 'still here');
    await file.close();
    assert.deepEqual(await volume.readdir('/'), []);
});

test('hard links', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/f', 'text');
    await volume.link('/f', '/hard');
    const [one, other] = [await volume.stat('/f'), await volume.stat('/hard')];
    assert.deepEqual([one.nlink, one.ino], [2, other.ino]);
    assert.equal(typeof one.ino, 'bigint');
    await fails('EEXIST', volume.link('/f', '/hard'));
    await volume.mkdir('/d');
    await fails('EPERM', volume.link('/d', '/e'));
    await volume.unlink('/f');
    assert.equal(await volume.readFile('/hard', 'utf8'), 'text');
    assert.equal((await volume.stat('/hard')).nlink, 1);
});

test('symbolic links', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/f', 'text');
    await volume.mkdir('/d');
    await volume.symlink('../f', '/d/link');
    assert.equal(await volume.readFile('/d/link', 'utf8'), 'text');
    assert.equal(await volume.readlink('/d/link'), '../f');
    assert.equal(await volume.realpath('/d/link'), '/f');
    const [link, file] = [await volume.lstat('/d/link'), await volume.stat('/d/link')];
    assert.deepEqual([link.isSymbolicLink(), link.isFile(), link.size], [true, false, 4]);
    assert.deepEqual([file.isSymbolicLink(), file.isFile(), file.isDirectory()], [false, true, false]);
    await fails('EINVAL', volume.readlink('/f'));
    await volume.symlink('loop', '/loop');
    await fails('ELOOP', volume.stat('/loop'));
    // Attributes of what it leads to, and of itself.
    await volume.utimes('/d/link', 1, 2);
    await volume.lutimes('/d/link', 3, 4);
    await volume.chown('/d/link', 5, 6);
    await volume.lchown('/d/link', 7, -1);
    const [itself, behind] = [await volume.lstat('/d/link'), await volume.stat('/f')];
    assert.deepEqual([behind.mtimeMs, behind.uid, behind.gid], [2000, 5, 6]);
    assert.deepEqual([itself.mtimeMs, itself.uid], [4000, 7]);
});

test('files are cut and extended with zeros', async (t) => {
    const volume = await inMemory(t);
    await volume.writeFile('/f', 'abcdef');
    await volume.truncate('/f', 3);
    assert.equal(await volume.readFile('/f', 'utf8'), 'abc');
    const file = await volume.open('/f', 'r+');
    await file.truncate(5);
    assert.deepEqual(await volume.readFile('/f'), Buffer.from('abc\0\0'));
    await file.truncate();
    assert.equal((await file.stat()).size, 0);
    await file.close();
    await fails('EISDIR', volume.truncate('/', 0));
    await fails('ERR_OUT_OF_RANGE', volume.truncate('/f', -1));
});

test('directories', async (t) => {
    const volume = await inMemory(t);
    await volume.mkdir('/d', 0o750);
    assert.deepEqual([(await volume.stat('/d')).mode, (await volume.stat('/d')).nlink], [0o040750, 2]);
    await fails('EEXIST', volume.mkdir('/d'));
    await fails('ENOENT', volume.mkdir('/no/d'));
    assert.equal(await volume.mkdir('/a/b/c', { recursive: true, mode: '700' }), '/a');
    assert.equal(await volume.mkdir('/a/b/x/y', { recursive: true }), '/a/b/x');
    assert.equal(await volume.mkdir('/a/b/c', { recursive: true }), undefined);
    assert.equal((await volume.stat('/a/b/c')).mode & 0o777, 0o700);
    await fails('ENOTEMPTY', volume.rmdir('/a'));
    await fails('ENAMETOOLONG', volume.mkdir(`/${'n'.repeat(256)}`));
    await volume.mkdir(`/${'n'.repeat(255)}`);
    await volume.rmdir(`/${'n'.repeat(255)}`);
    await volume.writeFile('/f', '');
    await fails('ENOTDIR', volume.mkdir('/f/x'));
    await fails('ENOTDIR', volume.mkdir('/f/x/y', { recursive: true }));
    await fails('EEXIST', volume.mkdir('/f', { recursive: true }));
    await fails('ENOTDIR', volume.rmdir('/f'));
    await fails('EISDIR', volume.unlink('/d'));
    await fails('EISDIR', volume.rm('/d'));
    await fails('ENOENT', volume.rm('/none'));
    await fails('ENOENT', volume.rm('/none', { recursive: true }));
    await volume.rm('/none', { force: true });
    await volume.symlink('a', '/link');
    await volume.rm('/link', { recursive: true });
    assert.ok(await volume.exists('/a/b/c'));
    await volume.rm('/a', { recursive: true });
    assert.ok(!(await volume.exists('/a')));
    await volume.syncDir('/d');
    await fails('ENOENT', volume.syncDir('/none'));
});

test('directories are listed', async (t) => {
    const volume = await inMemory(t);
    await volume.mkdir('/d/sub', { recursive: true });
    await volume.writeFile('/d/f', '');
    await volume.writeFile('/d/sub/g', '');
    await volume.symlink('f', '/d/link');
    assert.deepEqual((await volume.readdir('/d')).sort(), ['f', 'link', 'sub']);
    const kinds = (await volume.readdir('/d', { withFileTypes: true })).map((entry) =>
        [entry.name, entry.parentPath, entry.isFile(), entry.isDirectory(), entry.isSymbolicLink()].join(),
    );
    assert.deepEqual(kinds.sort(), ['f,/d,true,false,false', 'link,/d,false,false,true', 'sub,/d,false,true,false']);
    assert.deepEqual((await volume.readdir('/', { recursive: true })).sort(), ['d', 'd/f', 'd/link', 'd/sub', 'd/sub/g']);
    const below = await volume.readdir('/', { recursive: true, withFileTypes: true });
    assert.equal(below.find((entry) => entry.name === 'g').parentPath, '/d/sub');
    await fails('ENOTDIR', volume.readdir('/d/f'));
    await fails('ENOENT', volume.readdir('/none'));
    // More names than fit into one answer of the engine.
    await volume.mkdir('/many');
    const names = Array.from({ length: 3000 }, (_, n) => `name-${n}`);
    await Promise.all(names.map((name) => volume.writeFile(`/many/${name}`, '')));
    assert.deepEqual((await volume.readdir('/many')).sort(), names.sort());
});

test('names that are no UTF-8', async (t) => {
    const volume = await inMemory(t);
    const name = Buffer.from([0x63, 0xe9]);
    const at = Buffer.concat([Buffer.from('/'), name]);
    await volume.writeFile(at, 'x');
    assert.equal(await volume.readFile(at, 'utf8'), 'x');
    assert.deepEqual(await volume.readdir('/', { encoding: 'buffer' }), [name]);
    assert.deepEqual(await volume.readdir('/', 'buffer'), [name]);
    assert.deepEqual(await volume.readdir('/', 'latin1'), ['cé']);
    const [entry] = await volume.readdir('/', { encoding: 'buffer', withFileTypes: true });
    assert.deepEqual([entry.name, entry.isFile()], [name, true]);
    assert.deepEqual(await volume.readdir('/'), ['c\ufffd']);
    await volume.symlink(name, '/link');
    assert.deepEqual(await volume.readlink('/link', 'buffer'), name);
    assert.equal(await volume.readFile('/link', 'utf8'), 'x');
    const error = await fails('ENOENT', volume.stat(Buffer.from([0x2f, 0xff])));
    assert.deepEqual(error.path, Buffer.from([0x2f, 0xff]));
    await volume.unlink(at);
    assert.deepEqual(await volume.readdir('/'), ['link']);
});

test('attributes', async (t) => {
    const volume = await inMemory(t);
    const before = BigInt(Date.now() - 60_000) * 1_000_000n;
    await volume.writeFile('/f', 'x'.repeat(5000));
    const made = await volume.stat('/f');
    assert.ok(made.mtimeNs > before && made.birthtimeNs > before && made.ctimeNs > before && made.atimeNs > before);
    assert.deepEqual([made.size, made.nlink, made.mode], [5000, 1, 0o100644]);
    await volume.chmod('/f', 0o4751);
    assert.equal((await volume.stat('/f')).mode, 0o104751);
    await volume.chown('/f', 7, 8);
    await volume.chmod('/f', '640');
    await volume.utimes('/f', -5n, 1_000_000_000_123_456_789n);
    const found = await volume.stat('/f');
    assert.deepEqual([found.mode, found.uid, found.gid], [0o100640, 7, 8]);
    assert.deepEqual([found.atimeNs, found.mtimeNs], [-5n, 1_000_000_000_123_456_789n]);
    assert.deepEqual([found.mtime, Math.floor(found.mtimeMs)], [new Date(1_000_000_000_123), 1_000_000_000_123]);
    await volume.utimes('/f', 1.5, new Date(1_700_000_000_001));
    const later = await volume.stat('/f', { bigint: true });
    assert.deepEqual([later.atimeNs, later.mtimeMs, later.size], [1_500_000_000n, 1_700_000_000_001n, 5000n]);
    await assert.rejects(volume.utimes('/f', Infinity, 0), { code: 'ERR_INVALID_ARG_TYPE' });
    assert.equal((await volume.stat('/')).isDirectory(), true);
});

test('errors are those of node:fs', async (t) => {
    const volume = await inMemory(t);
    const error = await fails('ENOENT', volume.readFile('/none'));
    assert.ok(error instanceof Error);
    assert.deepEqual([error.errno, error.syscall, error.path], [-2, 'open', '/none']);
    assert.equal(error.message, "ENOENT: no such file or directory, open '/none'");
    try {
        await volume.unlink('/none');
        assert.fail('there is none');
    } catch (error) {
        // The program's own line is in it.
        assert.match(error.stack, /ENOENT[^]*posix\.test\.js/);
    }
    await fails('EISDIR', volume.readFile('/'));
    await volume.writeFile('/f', '');
    await fails('ENOTDIR', volume.readFile('/f/g'));
    await fails('ERR_INVALID_ARG_TYPE', volume.readFile(5));
    await fails('ERR_INVALID_ARG_VALUE', volume.readFile('/a\0b'));
    await fails('ERR_INVALID_ARG_VALUE', volume.readFile('/f', 'no-encoding'));
    await fails('ERR_INVALID_ARG_TYPE', volume.writeFile('/f', { length: 1 }));
    await fails('ERR_INVALID_ARG_VALUE', volume.open('/f', 'rw'));
    await fails('ERR_INVALID_ARG_VALUE', volume.open('/f', constants.O_DIRECTORY));
});

test('a full volume says so', async (t) => {
    const volume = await inMemory(t, 16 << 20);
    await fails('ENOSPC', volume.writeFile('/f', Buffer.alloc(32 << 20)));
    await volume.rm('/f', { force: true });
    await volume.writeFile('/g', 'x');
    assert.equal(await volume.readFile('/g', 'utf8'), 'x');
});
