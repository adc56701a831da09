// The worker of the page runs the program. Its first message has the module; the others are {id, request, files}, where files are pairs of
// a path and a File, and it answers each with {id, answer}. Files are read in slices, as the program asks.
"use strict";

const files = new Map(); // File by path
const opened = new Map(); // {path, position} by descriptor
let descriptors = 3, said = "";

const failure = (code) => Object.assign(new Error(code), { code });
const clean = (path) => path.split("/").filter((p) => p && p !== ".").join("/");

// information returns what the program asks about a path, or undefined if there is no such file or directory.
function information(path) {
  const name = clean(path), file = files.get(name);
  const directory = !file && (name === "" || [...files.keys()].some((f) => f.startsWith(name + "/")));
  if (!file && !directory) return undefined;
  return {
    dev: 0, ino: file ? [...files.keys()].indexOf(name) + 1 : 0, mode: file ? 0o100444 : 0o040555, nlink: 1, uid: 0, gid: 0, rdev: 0,
    size: file?.size ?? 0, blksize: 4096, blocks: 0, atimeMs: 0, mtimeMs: file?.lastModified ?? 0, ctimeMs: 0, isDirectory: () => directory,
  };
}

// fs is the part of Node's file system that Go's package os needs to read files.
globalThis.fs = new Proxy({
  constants: { O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_TRUNC: 512, O_APPEND: 1024, O_EXCL: 128, O_DIRECTORY: 65536 },
  writeSync(_, bytes) {
    said += new TextDecoder().decode(bytes);
    return bytes.length;
  },
  write(descriptor, bytes, _offset, _length, _position, callback) { callback(null, this.writeSync(descriptor, bytes)); },
  stat(path, callback) {
    const found = information(path);
    callback(found ? null : failure("ENOENT"), found);
  },
  lstat(path, callback) { this.stat(path, callback); },
  readlink(_, callback) { callback(failure("EINVAL")); },
  fstat(descriptor, callback) { this.stat(opened.get(descriptor).path, callback); },
  open(path, flags, _mode, callback) {
    if (!information(path)) callback(failure("ENOENT"));
    else if (flags & 0o3) callback(failure("EROFS"));
    else {
      opened.set(++descriptors, { path: clean(path), position: 0 });
      callback(null, descriptors);
    }
  },
  close(descriptor, callback) {
    opened.delete(descriptor);
    callback(null);
  },
  readdir(path, callback) {
    const prefix = clean(path) && clean(path) + "/";
    const below = [...files.keys()].filter((f) => f.startsWith(prefix)).map((f) => f.slice(prefix.length).split("/")[0]);
    callback(null, [...new Set(below)]);
  },
  read(descriptor, buffer, offset, length, position, callback) {
    const file = opened.get(descriptor), from = position ?? file.position;
    try {
      const bytes = new FileReaderSync().readAsArrayBuffer(files.get(file.path).slice(from, from + length));
      buffer.set(new Uint8Array(bytes), offset);
      if (position === null) file.position += bytes.byteLength;
      callback(null, bytes.byteLength);
    } catch { // a directory, or a file that has changed or gone
      callback(failure("EIO"));
    }
  },
}, { get: (known, name) => known[name] ?? ((...args) => args.at(-1)(failure("ENOSYS"))) });

globalThis.process = { getuid: () => -1, getgid: () => -1, geteuid: () => -1, getegid: () => -1, pid: -1, ppid: -1, cwd: () => "/" };

const started = new Promise((resolve) => { globalThis.ready = resolve; });

onmessage = async ({ data }) => {
  if (data.module) {
    try {
      const go = new Go();
      go.exit = () => {}; // the program's own last words are reported below
      await go.run(await WebAssembly.instantiate(data.module, go.importObject));
    } catch (e) {
      said ||= String(e);
    }
    postMessage({ ended: said.split("\n")[0] || "without a message" });
    return;
  }
  await started;
  for (const [path, file] of data.files ?? []) files.set(path, file);
  ask(data.request, (answer) => postMessage({ id: data.id, answer }));
};
