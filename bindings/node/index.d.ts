/// <reference types="node" />

/** A path in a volume, from its root. Names that are no UTF-8 are bytes. */
export type VolumePath = string | Uint8Array;
/** A file or block device of the host. */
export type HostPath = string | Uint8Array | URL;
/** Seconds since 1970, a Date, or nanoseconds since 1970 as a BigInt. */
export type Time = number | string | Date | bigint;
/** Permission bits; text is octal. */
export type Mode = number | string;
/** As in node:fs: `r`, `r+`, `w`, `wx`, `a`..., or of the constants O_. */
export type Flags = string | number;

export interface CreateOptions {
    /** Bytes of the volume's file. */
    size: number | bigint;
    /** A name for people, at most 64 bytes. Default: none. */
    label?: string;
    /** Bytes of a tree node: 4096, 16384 (default) or 65536. */
    nodeSize?: number;
    /** How often names, attributes and the places of data are stored. Default: once, from 256 MiB on twice what leads to the rest. */
    metadataCopies?: 1 | 2;
    /** Takes all space from the host now. Default false. */
    allocate?: boolean;
}

export interface OpenOptions {
    /** Nothing is written, whatever is called: EROFS. Default false. */
    readOnly?: boolean;
    /** Default: `main`. */
    branch?: string | Branch;
    /** Of the branch; it is only read. Default: the branch as it is. */
    snapshot?: string | Snapshot;
    /** Whether a volume that is mounted is reached through its mount; otherwise it is EBUSY. Default true. */
    throughMount?: boolean;
}

export interface WriteOptions {
    encoding?: BufferEncoding | null;
    /** Default `w`; `a` for appendFile. */
    flag?: Flags;
    /** Of a file that is made. Default 0o644; no umask is applied. */
    mode?: Mode;
    /** The file is durable when the promise is fulfilled. Default false. */
    flush?: boolean;
}

/** Every error of a call on a volume: `code` is ENOENT and its kin, `errno` is negative. */
export interface VolumeError extends Error {
    code: string;
    errno: number;
    syscall: string;
    path?: VolumePath;
    dest?: VolumePath;
}

export interface VolumeInfo {
    uuid: Buffer;
    label: string;
    size: number;
    nodeSize: number;
}

export interface Space {
    /** Bytes of a block. */
    bsize: number;
    blocks: number;
    bfree: number;
    bavail: number;
    files: number;
    ffree: number;
}

declare class Typed {
    isFile(): boolean;
    isDirectory(): boolean;
    isSymbolicLink(): boolean;
    isFIFO(): boolean;
    isSocket(): boolean;
    isBlockDevice(): boolean;
    isCharacterDevice(): boolean;
}

/** Attributes; with `{ bigint: true }` each number is a BigInt. */
export class Stats<N extends number | bigint = number> extends Typed {
    mode: N;
    nlink: N;
    uid: N;
    gid: N;
    rdev: N;
    size: N;
    blksize: N;
    /** Units of 512 bytes in use. */
    blocks: N;
    /** Never given to another file in the volume's life. */
    ino: bigint;
    atimeMs: N;
    mtimeMs: N;
    ctimeMs: N;
    birthtimeMs: N;
    atimeNs: bigint;
    mtimeNs: bigint;
    ctimeNs: bigint;
    birthtimeNs: bigint;
    atime: Date;
    mtime: Date;
    ctime: Date;
    birthtime: Date;
}

/** A name in a directory. */
export class Dirent<Name extends string | Buffer = string> extends Typed {
    name: Name;
    parentPath: string | Buffer;
}

export interface ReadOptions<View extends NodeJS.ArrayBufferView> {
    buffer?: View;
    offset?: number | null;
    length?: number | null;
    position?: number | bigint | null;
}

/** An open file. Calls may be made while others are under way. */
export class FileHandle {
    private constructor();
    readonly volume: Volume;
    readonly path: VolumePath;
    /** Without a position, from where the file is. Fewer bytes than asked only at the end. */
    read<View extends NodeJS.ArrayBufferView>(
        buffer: View,
        offset?: number | null,
        length?: number | null,
        position?: number | bigint | null,
    ): Promise<{ bytesRead: number; buffer: View }>;
    read<View extends NodeJS.ArrayBufferView>(
        buffer: View,
        options: Omit<ReadOptions<View>, 'buffer'>,
    ): Promise<{ bytesRead: number; buffer: View }>;
    read<View extends NodeJS.ArrayBufferView = Buffer>(
        options?: ReadOptions<View>,
    ): Promise<{ bytesRead: number; buffer: View }>;
    /** The bytes are those of the moment of the call. */
    write<View extends NodeJS.ArrayBufferView>(
        buffer: View,
        offset?: number | null | Omit<ReadOptions<View>, 'buffer'>,
        length?: number | null,
        position?: number | bigint | null,
    ): Promise<{ bytesWritten: number; buffer: View }>;
    write(
        text: string,
        position?: number | bigint | null,
        encoding?: BufferEncoding | null,
    ): Promise<{ bytesWritten: number; buffer: string }>;
    /** Everything from where the file is on. */
    readFile(options?: { encoding?: null } | 'buffer' | null): Promise<Buffer>;
    readFile(options: { encoding: BufferEncoding } | BufferEncoding): Promise<string>;
    /** Writes all of it where the file is, or at the end if it was opened to append. */
    writeFile(data: string | NodeJS.ArrayBufferView, options?: Pick<WriteOptions, 'encoding'> | BufferEncoding | null): Promise<void>;
    appendFile(data: string | NodeJS.ArrayBufferView, options?: Pick<WriteOptions, 'encoding'> | BufferEncoding | null): Promise<void>;
    /** fsync: data, size, attributes and every name of the file survive any crash from then on. */
    sync(): Promise<void>;
    /** fdatasync: data and size survive any crash from then on. */
    datasync(): Promise<void>;
    /** What the last fsync of the file cost, and why, in sentences; null if there was none. */
    receipt(): Promise<string | null>;
    stat(options?: { bigint?: false }): Promise<Stats>;
    stat(options: { bigint: true }): Promise<Stats<bigint>>;
    truncate(len?: number | bigint): Promise<void>;
    chmod(mode: Mode): Promise<void>;
    utimes(atime: Time, mtime: Time): Promise<void>;
    /** Closes the file, after the calls that are under way. Once more does nothing. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** A branch, by its name. Each call is durable when its promise is fulfilled. */
export class Branch {
    private constructor();
    readonly volume: Volume;
    readonly name: string;
    /** Opens it beside what is open. */
    open(): Promise<Volume>;
    snapshot(name: string): Promise<Snapshot>;
    snapshots(): Promise<Snapshot[]>;
    fork(name: string): Promise<Branch>;
    /** Goes back to a snapshot. What it was is kept as the snapshot `keep`, or deleted. */
    rollback(to: string | Snapshot, options?: { keep?: string }): Promise<void>;
    /** Becomes what its fork is, in one step; EAGAIN if it has changed since, unless `replace`. */
    promote(fork: string | Branch, options?: { keep?: string; replace?: boolean }): Promise<void>;
    rename(name: string): Promise<void>;
    /** Deletes it and its snapshots. */
    delete(): Promise<void>;
}

/** The files of a branch at one moment. They never change. */
export class Snapshot {
    private constructor();
    readonly branch: Branch;
    readonly name: string;
    readonly created: Date;
    readonly createdNs: bigint;
    /** Opens it, to be read only. */
    open(): Promise<Volume>;
    fork(name: string): Promise<Branch>;
    rename(name: string): Promise<void>;
    delete(): Promise<void>;
}

/** An open volume, at one of its branches or at a snapshot. */
export class Volume {
    private constructor();
    /** Makes a file of the host with an empty volume in it; EEXIST if it is there. */
    static create(image: HostPath, options: CreateOptions): Promise<Volume>;
    /** Opens the volume in a file or block device of the host. After a crash this recovers it first. */
    static open(image: HostPath, options?: OpenOptions): Promise<Volume>;
    /** A volume that is gone when it is closed, for tests. */
    static inMemory(size: number | bigint): Promise<Volume>;

    readonly closed: boolean;
    /** Where it is mounted, if it is reached through that. */
    readonly mountedAt: string | null;
    /** Makes everything durable and closes the volume; files that are still open answer EBADF. Once more does nothing. */
    close(): Promise<void>;
    /** The same, and nothing else in this thread goes on meanwhile. */
    closeSync(): void;
    [Symbol.dispose](): void;
    [Symbol.asyncDispose](): Promise<void>;
    /** Everything so far is durable when the promise is fulfilled. */
    sync(): Promise<void>;
    statfs(): Promise<Space>;
    info(): Promise<VolumeInfo>;

    open(path: VolumePath, flags?: Flags, mode?: Mode): Promise<FileHandle>;
    readFile(path: VolumePath, options?: { encoding?: null } | 'buffer' | null): Promise<Buffer>;
    readFile(path: VolumePath, options: { encoding: BufferEncoding } | BufferEncoding): Promise<string>;
    /** Not atomic and not durable: for that write another file with `flush`, and rename it here. */
    writeFile(path: VolumePath, data: string | NodeJS.ArrayBufferView, options?: WriteOptions | BufferEncoding | null): Promise<void>;
    appendFile(path: VolumePath, data: string | NodeJS.ArrayBufferView, options?: WriteOptions | BufferEncoding | null): Promise<void>;
    truncate(path: VolumePath, len?: number | bigint): Promise<void>;

    readdir(path: VolumePath, options?: { encoding?: BufferEncoding | null; withFileTypes?: false; recursive?: boolean } | BufferEncoding | null): Promise<string[]>;
    readdir(path: VolumePath, options: { encoding: 'buffer'; withFileTypes?: false; recursive?: boolean } | 'buffer'): Promise<Buffer[]>;
    readdir(path: VolumePath, options: { encoding?: BufferEncoding | null; withFileTypes: true; recursive?: boolean }): Promise<Dirent[]>;
    readdir(path: VolumePath, options: { encoding: 'buffer'; withFileTypes: true; recursive?: boolean }): Promise<Dirent<Buffer>[]>;
    stat(path: VolumePath, options?: { bigint?: false }): Promise<Stats>;
    stat(path: VolumePath, options: { bigint: true }): Promise<Stats<bigint>>;
    lstat(path: VolumePath, options?: { bigint?: false }): Promise<Stats>;
    lstat(path: VolumePath, options: { bigint: true }): Promise<Stats<bigint>>;
    exists(path: VolumePath): Promise<boolean>;
    /** With `recursive` the first directory that was made, or undefined. */
    mkdir(path: VolumePath, options?: { recursive?: boolean; mode?: Mode } | Mode): Promise<string | undefined>;
    rm(path: VolumePath, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
    rmdir(path: VolumePath): Promise<void>;
    unlink(path: VolumePath): Promise<void>;
    /** In one step, also across a crash. */
    rename(from: VolumePath, to: VolumePath): Promise<void>;
    link(from: VolumePath, to: VolumePath): Promise<void>;
    symlink(target: VolumePath, path: VolumePath): Promise<void>;
    readlink(path: VolumePath, options?: { encoding?: BufferEncoding | null } | BufferEncoding | null): Promise<string>;
    readlink(path: VolumePath, options: { encoding: 'buffer' } | 'buffer'): Promise<Buffer>;
    realpath(path: VolumePath, options?: { encoding?: BufferEncoding | null } | BufferEncoding | null): Promise<string>;
    realpath(path: VolumePath, options: { encoding: 'buffer' } | 'buffer'): Promise<Buffer>;
    /** The names in a directory are durable when the promise is fulfilled. */
    syncDir(path: VolumePath): Promise<void>;

    chmod(path: VolumePath, mode: Mode): Promise<void>;
    /** -1 leaves owner or group as it is. */
    chown(path: VolumePath, uid: number, gid: number): Promise<void>;
    lchown(path: VolumePath, uid: number, gid: number): Promise<void>;
    utimes(path: VolumePath, atime: Time, mtime: Time): Promise<void>;
    lutimes(path: VolumePath, atime: Time, mtime: Time): Promise<void>;

    /** A branch; without a name, the one that is open. */
    branch(name?: string | Branch): Promise<Branch>;
    branches(): Promise<Branch[]>;
    /** Of the branch that is open. */
    snapshot(name: string): Promise<Snapshot>;
    snapshots(): Promise<Snapshot[]>;
    fork(name: string): Promise<Branch>;
    rollback(to: string | Snapshot, options?: { keep?: string }): Promise<void>;
}
