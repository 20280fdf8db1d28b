'use strict';
// A crash-safe filesystem in one file or block device, without a mount. See README.md.

const { Volume } = require('./lib/volume.js');
const { Branch, Snapshot } = require('./lib/branches.js');
const { FileHandle } = require('./lib/file.js');
const { Dirent, Stats } = require('./lib/stats.js');

module.exports = { Branch, Dirent, FileHandle, Snapshot, Stats, Volume };
