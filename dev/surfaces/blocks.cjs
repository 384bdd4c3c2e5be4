'use strict';
// Commands in what users read: the blocks of a page, and a shell that executes them.

const { spawn } = require('node:child_process');
const fs = require('node:fs');

/** Longest time of one command. */
const LIMIT_MS = 300_000;

/** The blocks of a page that hold commands. */
function blocks(file, where, fail) {
  const lines = fs.readFileSync(file, 'utf8').split('\n');
  const found = [];
  for (let i = 0; i < lines.length; i += 1) {
    const open = lines[i].match(/^( *)```(.*)$/);
    if (!open) continue;
    const [, indent, info] = open;
    const begin = i + 1;
    for (i += 1; i < lines.length && lines[i].trim() !== '```'; i += 1);
    const text = lines.slice(begin, i).map((l) => l.slice(Math.min(indent.length, l.search(/\S|$/))));
    const why = remark('not run', lines.slice(0, begin - 1));
    const before = remark('before', lines.slice(0, begin - 1));
    const [language, ...marks] = info.trim().split(',');
    const at = `${where}:${begin}`;
    if (language === 'sh' || language === 'console') {
      const mark = marks.find((m) => m.startsWith('run'));
      if (!mark && !why) fail(at, 'neither `run` nor `<!-- not run: why -->`');
      found.push({ at, language, mark, why, before, text });
    } else if (!language && text.some((l) => /^(\$ )?(readback|dev\/|cargo|kubectl|docker|helm) /.test(l)) && !where.includes('coming_from')) {
      fail(at, 'commands in a block without `sh` or `console`');
    }
  }
  return found;
}

/** What a comment says right above a block. */
function remark(name, above) {
  return above.slice(-12).join('\n').match(new RegExp(`<!-- ${name}: ((?:(?!-->)[^])*?)\\s*-->\\s*$`))?.[1];
}

/** A shell that is told one command after the other. */
class Shell {
  constructor(cwd, env) {
    this.shell = spawn('bash', ['--noprofile', '--norc'], { cwd, env, detached: true });
    this.output = '';
    for (const stream of [this.shell.stdout, this.shell.stderr]) stream.setEncoding('utf8').on('data', (d) => { this.output += d; });
    // Jobs of their own, as in a shell of a person's: `%1` is what was begun first.
    // The first command that fails decides, not the last one of several.
    this.shell.stdin.write("set -mE; trap 'failed=$?' ERR\n");
  }
  /** Exit code and everything that was printed. */
  run(command) {
    const end = `end-${Math.random().toString(36).slice(2)}`;
    const from = this.output.length;
    this.shell.stdin.write(`failed=0\n${command}\nlast=$?; echo "${end} $((failed ? failed : last))"\n`);
    return new Promise((resolve) => {
      const begun = Date.now();
      const look = setInterval(() => {
        const said = this.output.slice(from);
        const done = said.match(new RegExp(`${end} (\\d+)\n`));
        const late = Date.now() - begun > LIMIT_MS;
        if (!done && !late && this.shell.exitCode === null) return;
        clearInterval(look);
        resolve({ code: done ? Number(done[1]) : -1, said: done ? said.slice(0, done.index) : said });
      }, 20);
    });
  }
  close() {
    this.shell.stdin.end();
    try { process.kill(-this.shell.pid, 'SIGKILL'); } catch { /* it has ended by itself */ }
  }
}

/** Whether lines are as a page shows them. */
function matches(shown, said) {
  const quote = (l) => l.trimEnd().split('…').map((p) => p.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*');
  const pattern = shown.map((l) => (l.trim() === '…' ? '(?:[^\n]*\n)*?' : `${quote(l)} *\n`)).join('');
  return new RegExp(`^${pattern}$`).test(said.trimEnd() + '\n');
}

module.exports = { blocks, matches, Shell };
