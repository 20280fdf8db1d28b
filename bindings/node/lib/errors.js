'use strict';
// Errors as Node has them: `code`, a negative `errno`, `syscall`, `path` and `dest`.

const os = require('node:os');
const util = require('node:util');

// What libuv has no name for.
const OTHERS = new Map([
    [61, ['ENODATA', 'no data available']],
    [117, ['EUCLEAN', 'structure needs cleaning']],
    [122, ['EDQUOT', 'disk quota exceeded']],
]);

/** The name of an errno, and what it says. */
function named(errno) {
    const known = util.getSystemErrorMap().get(-errno) ?? OTHERS.get(errno);
    if (known) return known;
    const other = Object.entries(os.constants.errno).find(([, number]) => number === errno);
    return other ? [other[0], 'failed'] : [`E${errno}`, 'failed'];
}

/** The error of a call: what it was about is the paths, as the program gave them. */
function failure(errno, sentence, syscall, path, dest) {
    const [code, text] = named(errno);
    const shown = (what) => `'${Buffer.from(what).toString()}'`;
    let about = syscall;
    if (path !== undefined) about += ` ${shown(path)}`;
    if (dest !== undefined) about += ` -> ${shown(dest)}`;
    const error = new Error(`${code}: ${sentence || text}, ${about}`);
    Object.assign(error, { errno: -errno, code, syscall });
    if (path !== undefined) error.path = path;
    if (dest !== undefined) error.dest = dest;
    return error;
}

/** Makes an error of what the native side has thrown: `errno:sentence`. */
function translated(thrown, syscall, path, dest) {
    const found = /^(\d+):(.*)$/s.exec(thrown?.message ?? '');
    return found ? failure(Number(found[1]), found[2], syscall, path, dest) : thrown;
}

/** What a promise of the native side gives, or a real error. */
async function answered(promise, syscall, path, dest) {
    try {
        return await promise;
    } catch (thrown) {
        throw translated(thrown, syscall, path, dest);
    }
}

/** The error of an argument: a mistake of the program, which has no errno. */
function wrong(Kind, code, text) {
    const error = new Kind(text);
    error.code = code;
    return error;
}

const wrongType = (name, wanted) => wrong(TypeError, 'ERR_INVALID_ARG_TYPE', `"${name}" must be ${wanted}`);
const wrongValue = (name, why) => wrong(TypeError, 'ERR_INVALID_ARG_VALUE', `"${name}" ${why}`);
const outOfRange = (name, why) => wrong(RangeError, 'ERR_OUT_OF_RANGE', `"${name}" ${why}`);

module.exports = { answered, failure, outOfRange, translated, wrongType, wrongValue };
