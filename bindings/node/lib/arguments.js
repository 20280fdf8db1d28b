'use strict';
// Arguments of calls, checked, in the form that the native side takes.

const { constants } = require('node:fs');
const { fileURLToPath } = require('node:url');
const { outOfRange, wrongType, wrongValue } = require('./errors.js');

const EBADF = 9;

/** The bytes of a path in a volume. */
function pathBytes(path, name = 'path') {
    if (typeof path !== 'string' && !(path instanceof Uint8Array)) {
        throw wrongType(name, 'a string, Buffer or Uint8Array');
    }
    const bytes = Buffer.from(path);
    if (bytes.includes(0)) throw wrongValue(name, 'must have no null bytes');
    return bytes;
}

/** The bytes of a path of the host. */
function hostPath(path) {
    return pathBytes(path instanceof URL ? fileURLToPath(path) : path);
}

/** Options, which may be the name of an encoding. */
function optionsOf(options) {
    if (options === undefined || options === null) return {};
    if (typeof options === 'string') return { encoding: options };
    if (typeof options !== 'object') throw wrongType('options', 'an object or the name of an encoding');
    return options;
}

/** An encoding, or undefined for bytes. */
function encodingOf({ encoding }) {
    if (encoding === undefined || encoding === null || encoding === 'buffer') return undefined;
    if (!Buffer.isEncoding(encoding)) throw wrongValue('encoding', `is none: '${encoding}'`);
    return encoding;
}

/** Bytes as what `options` asks for: text unless it says `buffer`. */
function asText(bytes, options) {
    if (options.encoding === 'buffer') return bytes;
    return bytes.toString(encodingOf(options) ?? 'utf8');
}

/** The bytes of content. */
function contentBytes(data, encoding, name = 'data') {
    if (typeof data === 'string') return Buffer.from(data, encodingOf({ encoding }) ?? 'utf8');
    return viewBytes(data, name, 'a string, TypedArray or DataView');
}

/** The same memory as bytes. */
function viewBytes(view, name, wanted = 'a TypedArray or DataView') {
    if (!ArrayBuffer.isView(view)) throw wrongType(name, wanted);
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** A whole number from `least` to `most`, also given as a BigInt. */
function integer(value, name, least = 0, most = Number.MAX_SAFE_INTEGER) {
    if (typeof value !== 'number' && typeof value !== 'bigint') throw wrongType(name, 'a number');
    const number = Number(value);
    if (!Number.isInteger(number) || number < least || number > most) {
        throw outOfRange(name, `must be a whole number from ${least} to ${most}, and is ${value}`);
    }
    return number;
}

/** A position in a file; undefined is where the file is. */
function positionOf(position) {
    if (position === undefined || position === null || position === -1 || position === -1n) return undefined;
    return integer(position, 'position');
}

/** Permission bits, also as octal text. */
function modeOf(mode, otherwise) {
    if (mode === undefined || mode === null) return otherwise;
    if (typeof mode === 'string') {
        if (!/^[0-7]+$/.test(mode)) throw wrongValue('mode', `must be octal: '${mode}'`);
        mode = parseInt(mode, 8);
    }
    return integer(mode, 'mode', 0, 0xffffffff) & 0o7777;
}

// As node:fs has them; `rs` and `as` write through, and `x` makes a file that is not there.
const FLAGS = {
    r: 'r', rs: 'rs', sr: 'rs', 'r+': 'rw', 'rs+': 'rws', 'sr+': 'rws',
    w: 'wtc', wx: 'wx', xw: 'wx', 'w+': 'rwtc', 'wx+': 'rwx', 'xw+': 'rwx',
    a: 'ac', ax: 'ax', xa: 'ax', as: 'acs', sa: 'acs',
    'a+': 'rac', 'ax+': 'rax', 'xa+': 'rax', 'as+': 'racs', 'sa+': 'racs',
};

/** How a file is opened, in the letters of the native side. */
function flagsOf(flags, otherwise) {
    if (flags === undefined || flags === null) flags = otherwise;
    if (typeof flags === 'number') return numericFlags(flags);
    if (typeof flags !== 'string' || !Object.hasOwn(FLAGS, flags)) throw wrongValue('flags', `are none: ${flags}`);
    return FLAGS[flags];
}

function numericFlags(flags) {
    const { O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_SYNC, O_DSYNC, O_NOATIME, O_NOFOLLOW } = constants;
    const access = flags & (O_WRONLY | O_RDWR);
    const known = O_WRONLY | O_RDWR | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_SYNC | O_NOATIME | O_NOFOLLOW;
    if (!Number.isInteger(flags) || (flags & ~known) !== 0 || access === (O_WRONLY | O_RDWR)) {
        throw wrongValue('flags', `are none that a volume knows: ${flags}`);
    }
    let how = access === O_WRONLY ? '' : 'r';
    if (access !== 0) how += flags & O_APPEND ? 'a' : 'w';
    if (flags & O_CREAT) how += flags & O_EXCL ? 'x' : 'c';
    if (flags & O_TRUNC) how += 't';
    // O_SYNC has the bit of O_DSYNC, too.
    if ((flags & O_SYNC) === O_SYNC) how += 's';
    else if (flags & O_DSYNC) how += 'd';
    if (flags & O_NOATIME) how += 'n';
    if (flags & O_NOFOLLOW) how += 'l';
    return how;
}

const SECOND = 1_000_000_000n;

/** A time as whole seconds, rounded down, and the nanoseconds behind them: of seconds, a Date, or a BigInt of nanoseconds. */
function timeOf(time, name) {
    if (typeof time === 'bigint') {
        const rest = ((time % SECOND) + SECOND) % SECOND;
        return [integer((time - rest) / SECOND, name, Number.MIN_SAFE_INTEGER), Number(rest)];
    }
    const milliseconds = time instanceof Date;
    const number = milliseconds ? time.getTime() : Number(time);
    if ((typeof time !== 'number' && typeof time !== 'string' && !milliseconds) || !Number.isFinite(number)) {
        throw wrongType(name, 'a number of seconds, a Date, or a BigInt of nanoseconds');
    }
    const unit = milliseconds ? 1000 : 1;
    const whole = Math.floor(number / unit);
    const rest = Math.floor((number - whole * unit) * (1e9 / unit));
    return [integer(whole, name, Number.MIN_SAFE_INTEGER), Math.min(rest, 999_999_999)];
}

/** Both times of `utimes`. */
function timesOf(accessed, modified) {
    const [atime, atimeRest] = timeOf(accessed, 'atime');
    const [mtime, mtimeRest] = timeOf(modified, 'mtime');
    return { atime, atimeRest, mtime, mtimeRest };
}

/** A name of a branch or snapshot, or of anything that has a name. */
function nameOf(named, name = 'name') {
    const text = typeof named === 'object' && named !== null ? named.name : named;
    if (typeof text !== 'string') throw wrongType(name, 'a string, or what has a name');
    return text;
}

/** The same, where there may be none. */
function perhapsName(named, name) {
    return named === undefined || named === null ? undefined : nameOf(named, name);
}

module.exports = {
    EBADF, asText, contentBytes, encodingOf, flagsOf, hostPath, integer, modeOf, nameOf, optionsOf, pathBytes, perhapsName,
    positionOf, timesOf, viewBytes,
};
