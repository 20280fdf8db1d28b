'use strict';
// Open files.

const { EBADF, asText, contentBytes, encodingOf, integer, modeOf, optionsOf, positionOf, timesOf, viewBytes } = require('./arguments.js');
const { answered, failure, outOfRange } = require('./errors.js');
const { Stats } = require('./stats.js');

/** Most bytes of one read or write, as the system calls have it. */
const MOST = 0x7ffff000;

/** The part of a view that a call is about. */
function part(view, offset, length) {
    const bytes = viewBytes(view, 'buffer');
    const from = integer(offset ?? 0, 'offset');
    if (from > bytes.length) throw outOfRange('offset', `must be at most ${bytes.length}, and is ${from}`);
    const len = integer(length ?? bytes.length - from, 'length');
    if (len > bytes.length - from) throw outOfRange('length', `must be at most ${bytes.length - from}, and is ${len}`);
    return bytes.subarray(from, from + Math.min(len, MOST));
}

/** An open file, as a FileHandle of node:fs/promises. Calls may be made while others are under way. */
class FileHandle {
    #native;
    #volume;
    #path;
    #closing;
    // Calls that are under way.
    #calls = new Set();

    constructor(native, volume, path) {
        this.#native = native;
        // A volume that is let go of while its files are used would close under them.
        this.#volume = volume;
        this.#path = path;
    }

    /** The volume that it is of. */
    get volume() {
        return this.#volume;
    }

    /** The path that it was opened by. */
    get path() {
        return this.#path;
    }

    #call(syscall, body) {
        if (this.#closing) throw failure(EBADF, 'file closed', syscall);
        const call = answered(body(this.#native), syscall);
        this.#calls.add(call);
        const over = () => this.#calls.delete(call);
        call.then(over, over);
        return call;
    }

    async read(buffer, offset, length, position) {
        if (!ArrayBuffer.isView(buffer)) {
            // read(options)
            ({ buffer = Buffer.alloc(16384), offset, length, position } = buffer ?? {});
        } else if (offset !== null && typeof offset === 'object') {
            ({ offset, length, position } = offset);
        }
        const into = part(buffer, offset, length);
        const at = positionOf(position);
        const found = await this.#call('read', (native) => native.read(into.length, at));
        into.set(found);
        return { bytesRead: found.length, buffer };
    }

    async write(data, offset, length, position) {
        let from;
        if (typeof data === 'string') {
            // write(string, position, encoding)
            from = contentBytes(data, length);
            position = offset;
        } else {
            if (offset !== null && typeof offset === 'object') ({ offset, length, position } = offset);
            from = part(data, offset, length);
        }
        const at = positionOf(position);
        const bytesWritten = await this.#call('write', (native) => native.write(from.subarray(0, MOST), at));
        return { bytesWritten, buffer: data };
    }

    /** Everything from where the file is on. */
    async readFile(options) {
        options = optionsOf(options);
        const encoding = encodingOf(options);
        const found = await this.#call('read', (native) => native.readAll());
        return encoding ? asText(found, options) : found;
    }

    /** Writes all of it where the file is, or at the end if it was opened to append. */
    async writeFile(data, options) {
        const bytes = contentBytes(data, optionsOf(options).encoding);
        await this.#call('write', (native) => native.writeAll(bytes));
    }

    async appendFile(data, options) {
        await this.writeFile(data, options);
    }

    /** fsync: data, size, attributes and every name of the file survive any crash from then on (P1). */
    async sync() {
        await this.#call('fsync', (native) => native.sync(false));
    }

    /** fdatasync: data and size survive any crash from then on (P1). */
    async datasync() {
        await this.#call('fdatasync', (native) => native.sync(true));
    }

    /** What the last fsync of the file cost, and why, in sentences; null if there was none. */
    async receipt() {
        return (await this.#call('receipt', (native) => native.receipt())) ?? null;
    }

    async stat(options) {
        return new Stats(await this.#call('fstat', (native) => native.stat()), options?.bigint === true);
    }

    async truncate(len) {
        const bytes = integer(len ?? 0, 'len');
        await this.#call('ftruncate', (native) => native.truncate(bytes));
    }

    async chmod(mode) {
        const bits = modeOf(mode, 0);
        await this.#call('fchmod', (native) => native.chmod(bits));
    }

    async utimes(atime, mtime) {
        const times = timesOf(atime, mtime);
        await this.#call('futime', (native) => native.utimes(times));
    }

    /** Closes the file, after the calls that are under way. Once more does nothing. */
    close() {
        this.#closing ??= Promise.allSettled(this.#calls).then(() => answered(this.#native.close(), 'close'));
        return this.#closing;
    }

    async [Symbol.asyncDispose]() {
        await this.close();
    }
}

module.exports = { FileHandle };
