'use strict';
// What is known of files.

const { constants } = require('node:fs');

const NUMBERS = ['mode', 'nlink', 'uid', 'gid', 'rdev', 'size', 'blocks'];
const TIMES = ['atime', 'mtime', 'ctime', 'birthtime'];

/** What a file is, by bits of a mode. */
class Typed {
    #type;

    constructor(mode) {
        this.#type = mode & constants.S_IFMT;
    }

    isFile() {
        return this.#type === constants.S_IFREG;
    }

    isDirectory() {
        return this.#type === constants.S_IFDIR;
    }

    isSymbolicLink() {
        return this.#type === constants.S_IFLNK;
    }

    isFIFO() {
        return this.#type === constants.S_IFIFO;
    }

    isSocket() {
        return this.#type === constants.S_IFSOCK;
    }

    isBlockDevice() {
        return this.#type === constants.S_IFBLK;
    }

    isCharacterDevice() {
        return this.#type === constants.S_IFCHR;
    }
}

/** Attributes, as fs.Stats; but `ino` is a BigInt, and nanoseconds are there always. With `bigint` every number is one. */
class Stats extends Typed {
    constructor(found, bigint) {
        super(found.mode);
        const number = (value) => (bigint ? BigInt(value) : value);
        for (const name of NUMBERS) this[name] = number(found[name]);
        this.ino = found.ino;
        this.blksize = number(4096);
        for (const name of TIMES) {
            const ns = found[`${name}Ns`];
            const milliseconds = Number(ns) / 1e6;
            this[`${name}Ns`] = ns;
            this[`${name}Ms`] = bigint ? ns / 1_000_000n : milliseconds;
            this[name] = new Date(Math.floor(milliseconds));
        }
    }
}

/** A name in a directory, as fs.Dirent. */
class Dirent extends Typed {
    constructor(name, parentPath, mode) {
        super(mode);
        this.name = name;
        this.parentPath = parentPath;
    }
}

module.exports = { Dirent, Stats };
