'use strict';
// Branches and snapshots of a volume. Each call is durable when its promise is fulfilled.

const { nameOf, perhapsName } = require('./arguments.js');
const { answered } = require('./errors.js');

/** A branch, by its name. */
class Branch {
    #native;
    #wrap;

    constructor(volume, native, wrap, name) {
        // A volume that is let go of would close.
        this.volume = volume;
        this.#native = native;
        this.#wrap = wrap;
        this.name = name;
    }

    /** Opens it beside what is open. */
    async open() {
        return this.#wrap(await answered(this.#native.openBranch(this.name, undefined), 'open', this.name));
    }

    /** Takes a snapshot. It costs the same for any tree. */
    async snapshot(name) {
        const taken = await answered(this.#native.snapshot(this.name, nameOf(name)), 'snapshot', nameOf(name));
        return new Snapshot(this.#native, this.#wrap, this, taken);
    }

    /** Its snapshots, in the order in which they were taken. */
    async snapshots() {
        const all = await answered(this.#native.snapshots(this.name), 'snapshots', this.name);
        return all.map((taken) => new Snapshot(this.#native, this.#wrap, this, taken));
    }

    /** Makes a branch out of it as it is now. */
    async fork(name) {
        await answered(this.#native.fork(this.name, undefined, nameOf(name)), 'fork', this.name, name);
        return new Branch(this.volume, this.#native, this.#wrap, name);
    }

    /** Goes back to a snapshot. What it was is kept as the snapshot `keep`, or deleted. */
    async rollback(to, { keep } = {}) {
        const name = nameOf(to, 'to');
        await answered(this.#native.rollback(this.name, name, perhapsName(keep, 'keep')), 'rollback', name);
    }

    /** Becomes what its fork is, in one step; EAGAIN if it has changed since, unless `replace`. */
    async promote(fork, { keep, replace = false } = {}) {
        const name = nameOf(fork, 'fork');
        const kept = perhapsName(keep, 'keep');
        await answered(this.#native.promote(this.name, name, kept, replace === true), 'promote', name);
    }

    async rename(name) {
        await answered(this.#native.renameBranch(this.name, undefined, nameOf(name)), 'rename', this.name, name);
        this.name = name;
    }

    /** Deletes it and its snapshots. */
    async delete() {
        await answered(this.#native.delete(this.name, undefined), 'delete', this.name);
    }
}

/** The files of a branch at one moment. They never change. */
class Snapshot {
    #native;
    #wrap;

    constructor(native, wrap, branch, taken) {
        this.#native = native;
        this.#wrap = wrap;
        this.branch = branch;
        this.name = taken.name;
        this.createdNs = taken.createdNs;
        this.created = new Date(Number(taken.createdNs / 1_000_000n));
    }

    /** Opens it, to be read only. */
    async open() {
        const opened = await answered(this.#native.openBranch(this.branch.name, this.name), 'open', this.name);
        return this.#wrap(opened);
    }

    /** Makes a branch out of it. */
    async fork(name) {
        await answered(this.#native.fork(this.branch.name, this.name, nameOf(name)), 'fork', this.name, name);
        return new Branch(this.branch.volume, this.#native, this.#wrap, name);
    }

    async rename(name) {
        await answered(this.#native.renameBranch(this.branch.name, this.name, nameOf(name)), 'rename', this.name, name);
        this.name = name;
    }

    /** Deletes it. Its space comes back in the background. */
    async delete() {
        await answered(this.#native.delete(this.branch.name, this.name), 'delete', this.name);
    }
}

module.exports = { Branch, Snapshot };
