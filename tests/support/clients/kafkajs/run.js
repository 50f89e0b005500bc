'use strict'
// One scenario against one broker: `node run.js HOST:PORT FILE.NAME [JSON]`, the settings as JSON, on stdin if not told.
// It prints what it sees as one JSON object a line, the last of them `end`; the test that started it judges.

const fs = require('fs')
const { connect, say } = require('./client')

const main = async ([bootstrap, scenario, told]) => {
  const [file, name] = scenario.split('.')
  const settings = JSON.parse(told === undefined ? fs.readFileSync(0, 'utf8') : told)
  await require(`./${file}`)[name](connect(bootstrap), settings)
  say('end')
}

main(process.argv.slice(2)).then(
  () => process.stdout.write('', () => process.exit(0)), // once everything is said
  (error) => {
    process.stderr.write(`${error.stack}\n`)
    process.exit(1)
  }
)
