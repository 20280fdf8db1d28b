'use strict';
// Volumes, and every call that takes a path.

const native = require('../holdfast.node');
const {
    asText, contentBytes, encodingOf, flagsOf, hostPath, integer, modeOf, nameOf, optionsOf, pathBytes, perhapsName, timesOf,
} = require('./arguments.js');
const { Branch } = require('./branches.js');
const { answered, translated } = require('./errors.js');
const { FileHandle } = require('./file.js');
const { Dirent, Stats } = require('./stats.js');

// What is open. A program that ends closes it, as nothing else would.
const open = new Set();
process.on('exit', () => {
    for (const volume of open) {
        try {
            volume.closeSync();
        } catch {
            // Nobody is there who could be told.
        }
    }
});

// A volume that is forgotten without being closed is closed on another thread.
const forgotten = new FinalizationRegistry((volume) => {
    process.emitWarning('a volume was forgotten that was not closed: call close()', { code: 'HOLDFAST_UNCLOSED' });
    volume.close().then(
        () => open.delete(volume),
        (thrown) => process.emitWarning(translated(thrown, 'close').message),
    );
});

function wrapped(opened) {
    return new Volume(MADE, opened);
}

const MADE = Symbol('made');

/** An open volume, at one of its branches or at a snapshot. Paths are those in the volume, from its root. */
class Volume {
    #native;
    #closing;

    constructor(made, opened) {
        if (made !== MADE) throw new TypeError('a volume is made by Volume.create or Volume.open');
        this.#native = opened;
        open.add(opened);
        forgotten.register(this, opened, this);
    }

    static async create(image, options) {
        const { size, label, nodeSize, metadataCopies, allocate } = options ?? {};
        const how = { size: integer(size, 'size'), label: perhapsName(label, 'label'), allocate: allocate === true };
        if (nodeSize !== undefined) how.nodeSize = integer(nodeSize, 'nodeSize', 0, 0xffffffff);
        if (metadataCopies !== undefined) how.metadataCopies = integer(metadataCopies, 'metadataCopies', 1, 2);
        return wrapped(await answered(native.Volume.create(hostPath(image), how), 'create', String(image)));
    }

    static async open(image, options) {
        const { readOnly, branch, snapshot, throughMount } = options ?? {};
        const how = {
            readOnly: readOnly === true,
            branch: perhapsName(branch, 'branch'),
            snapshot: perhapsName(snapshot, 'snapshot'),
            throughMount: throughMount !== false,
        };
        return wrapped(await answered(native.Volume.open(hostPath(image), how), 'open', String(image)));
    }

    static async inMemory(size) {
        return wrapped(await answered(native.Volume.inMemory(integer(size, 'size')), 'create'));
    }

    // The volume as a whole.

    get closed() {
        return this.#closing !== undefined;
    }

    get mountedAt() {
        const there = this.#native.mountedAt();
        return there ? there.toString() : null;
    }

    /** Makes everything durable and closes the volume. Once more does nothing. */
    close() {
        if (!this.#closing) {
            this.#forget();
            const opened = this.#native;
            this.#closing = answered(opened.close(), 'close').finally(() => open.delete(opened));
        }
        return this.#closing;
    }

    /** The same, and nothing else in this thread goes on meanwhile. */
    closeSync() {
        this.#forget();
        this.#closing ??= Promise.resolve();
        try {
            this.#native.closeSync();
        } catch (thrown) {
            throw translated(thrown, 'close');
        } finally {
            open.delete(this.#native);
        }
    }

    #forget() {
        forgotten.unregister(this);
    }

    [Symbol.dispose]() {
        this.closeSync();
    }

    async [Symbol.asyncDispose]() {
        await this.close();
    }

    async sync() {
        await answered(this.#native.sync(), 'sync');
    }

    async statfs() {
        return answered(this.#native.statfs(), 'statfs');
    }

    async info() {
        return answered(this.#native.info(), 'info');
    }

    // Files.

    async open(file, flags, mode) {
        const how = flagsOf(flags, 'r');
        const opened = await answered(this.#native.openFile(pathBytes(file), how, modeOf(mode, 0o644)), 'open', file);
        return new FileHandle(opened, this, file);
    }

    async readFile(file, options) {
        options = optionsOf(options);
        const encoding = encodingOf(options);
        const found = await answered(this.#native.readFile(pathBytes(file)), 'open', file);
        return encoding ? asText(found, options) : found;
    }

    async writeFile(file, data, options) {
        await this.#write(file, data, optionsOf(options), 'w');
    }

    async appendFile(file, data, options) {
        await this.#write(file, data, optionsOf(options), 'a');
    }

    async #write(file, data, { encoding, flag, mode, flush }, otherwise) {
        const how = flagsOf(flag, otherwise);
        const bytes = contentBytes(data, encoding);
        const written = this.#native.writeFile(pathBytes(file), bytes, how, modeOf(mode, 0o644), flush === true);
        await answered(written, 'open', file);
    }

    async truncate(file, len) {
        await answered(this.#native.truncate(pathBytes(file), integer(len ?? 0, 'len')), 'open', file);
    }

    // Names.

    async readdir(dir, options) {
        options = optionsOf(options);
        encodingOf(options);
        const all = await this.#entries(dir, '', options);
        if (!options.withFileTypes) return all.map((entry) => entry.shown);
        return all.map((entry) => new Dirent(asText(entry.name, options), entry.parent, entry.mode));
    }

    /** What is in a directory; with `recursive` below it as well. `under`: names from where that began. */
    async #entries(dir, under, options) {
        const { names, types } = await answered(this.#native.readdir(pathBytes(dir)), 'scandir', dir);
        const found = [];
        let from = 0;
        for (const type of types) {
            const end = names.indexOf(0, from);
            const name = names.subarray(from, end);
            const relative = under.length ? Buffer.concat([under, SLASH, name]) : name;
            const parent = typeof dir === 'string' ? dir : asText(dir, { encoding: options.encoding });
            const entry = { name, parent, shown: asText(relative, options), relative, mode: type << 12 };
            found.push(entry);
            from = end + 1;
        }
        if (!options.recursive) return found;
        const all = [];
        for (const entry of found) {
            all.push(entry);
            if (entry.mode !== DIRECTORY) continue;
            const above = pathBytes(dir);
            const below = Buffer.concat([above, above.at(-1) === SLASH[0] ? NOTHING : SLASH, entry.name]);
            all.push(...(await this.#entries(below, entry.relative, options)));
        }
        return all;
    }

    async stat(file, options) {
        return this.#stat(file, true, 'stat', options);
    }

    async lstat(file, options) {
        return this.#stat(file, false, 'lstat', options);
    }

    async #stat(file, follow, syscall, options) {
        const found = await answered(this.#native.stat(pathBytes(file), follow), syscall, file);
        return new Stats(found, options?.bigint === true);
    }

    async exists(file) {
        try {
            await this.stat(file);
            return true;
        } catch (error) {
            if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return false;
            throw error;
        }
    }

    async mkdir(dir, options) {
        const { recursive, mode } = typeof options === 'object' && options !== null ? options : { mode: options };
        const made = this.#native.mkdir(pathBytes(dir), modeOf(mode, 0o755), recursive === true);
        const first = await answered(made, 'mkdir', dir);
        return first ? first.toString() : undefined;
    }

    async rm(file, { recursive = false, force = false } = {}) {
        await answered(this.#native.rm(pathBytes(file), recursive === true, force === true), 'rm', file);
    }

    async rmdir(dir) {
        await answered(this.#native.rmdir(pathBytes(dir)), 'rmdir', dir);
    }

    async unlink(file) {
        await answered(this.#native.unlink(pathBytes(file)), 'unlink', file);
    }

    async rename(from, to) {
        await answered(this.#native.rename(pathBytes(from, 'from'), pathBytes(to, 'to')), 'rename', from, to);
    }

    async link(from, to) {
        await answered(this.#native.link(pathBytes(from, 'from'), pathBytes(to, 'to')), 'link', from, to);
    }

    async symlink(target, file) {
        await answered(this.#native.symlink(pathBytes(target, 'target'), pathBytes(file)), 'symlink', target, file);
    }

    async readlink(file, options) {
        options = optionsOf(options);
        encodingOf(options);
        return asText(await answered(this.#native.readlink(pathBytes(file)), 'readlink', file), options);
    }

    async realpath(file, options) {
        options = optionsOf(options);
        encodingOf(options);
        return asText(await answered(this.#native.realpath(pathBytes(file)), 'realpath', file), options);
    }

    /** Makes the names in a directory durable (P2). */
    async syncDir(dir) {
        await answered(this.#native.syncDir(pathBytes(dir)), 'fsync', dir);
    }

    // Attributes.

    async chmod(file, mode) {
        await answered(this.#native.chmod(pathBytes(file), modeOf(mode, 0)), 'chmod', file);
    }

    async chown(file, uid, gid) {
        await this.#chown(file, uid, gid, true, 'chown');
    }

    async lchown(file, uid, gid) {
        await this.#chown(file, uid, gid, false, 'lchown');
    }

    async #chown(file, uid, gid, follow, syscall) {
        // -1 leaves it as it is.
        const [owner, group] = [uid, gid].map((id) => (id === -1 ? undefined : integer(id, 'id', 0, 0xfffffffe)));
        await answered(this.#native.chown(pathBytes(file), owner, group, follow), syscall, file);
    }

    async utimes(file, atime, mtime) {
        await answered(this.#native.utimes(pathBytes(file), timesOf(atime, mtime), true), 'utime', file);
    }

    async lutimes(file, atime, mtime) {
        await answered(this.#native.utimes(pathBytes(file), timesOf(atime, mtime), false), 'lutime', file);
    }

    // Branches and snapshots.

    /** A branch; without a name, the one that is open. ENOENT if there is none. */
    async branch(name) {
        const wanted = perhapsName(name, 'name');
        return this.#branch(await answered(this.#native.branchName(wanted), 'branch', wanted));
    }

    #branch(name) {
        return new Branch(this, this.#native, wrapped, name);
    }

    /** All branches, in the order in which they were made. */
    async branches() {
        return (await answered(this.#native.branches(), 'branches')).map((name) => this.#branch(name));
    }

    async snapshot(name) {
        return (await this.branch()).snapshot(nameOf(name));
    }

    async snapshots() {
        return (await this.branch()).snapshots();
    }

    async fork(name) {
        return (await this.branch()).fork(nameOf(name));
    }

    async rollback(to, options) {
        await (await this.branch()).rollback(to, options);
    }
}

const SLASH = Buffer.from('/');
const NOTHING = Buffer.alloc(0);
const DIRECTORY = 0o040000;

module.exports = { Volume };
