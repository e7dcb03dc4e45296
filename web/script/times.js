// Times as people read them.

// ago says how long ago something happened, as briefly as possible.
export function ago(date, now = new Date()) {
  const seconds = (now - date) / 1000
  if (seconds < 60) return 'now'
  if (seconds < 3600) return Math.floor(seconds / 60) + 'm'
  if (seconds < 86400) return Math.floor(seconds / 3600) + 'h'
  if (seconds < 604800) return Math.floor(seconds / 86400) + 'd'
  const sameYear = date.getFullYear() === now.getFullYear()
  return date.toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: sameYear ? undefined : 'numeric' })
}

// past says it in a sentence, after a word such as "joined". A date stays a date.
export function past(date, now = new Date()) {
  const text = ago(date, now), seconds = (now - date) / 1000
  return seconds < 60 ? 'just now' : seconds < 604800 ? text + ' ago' : text
}

// elapsed says how long something has been running.
export function elapsed(milliseconds) {
  const s = Math.max(0, Math.floor(milliseconds / 1000))
  return s < 60 ? s + 's' : s < 3600 ? Math.floor(s / 60) + 'm ' + (s % 60) + 's' : Math.floor(s / 3600) + 'h ' + Math.floor(s % 3600 / 60) + 'm'
}

// Tools of agents that run a command.
const shells = ['run_command', 'bash', 'Bash', 'shell', 'exec_command']

// worked describes calls of tools with these names, and how long they took: "6 commands · 2s". A command has no name.
export function worked(names, milliseconds) {
  const commands = names.every(name => !name || shells.includes(name))
  const what = names.length + (commands ? ' command' : ' tool') + (names.length === 1 ? '' : 's')
  return milliseconds >= 1000 ? what + ' · ' + elapsed(milliseconds) : what
}

const dayWords = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' })

// dayWord names the day of a date in the reader's time zone.
export function dayWord(date, now = new Date()) {
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86_400_000)
  return days === 0 ? 'Today' : days === 1 ? 'Yesterday' : dayWords.format(date)
}
