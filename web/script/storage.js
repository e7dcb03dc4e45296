// What survives a reload. Storage may be full, or the browser may forbid it. Then drafts are lost with the page, and the page
// opens at the end. Several people may log in to a browser one after the other, so all keys have the person: nobody finds the
// drafts of another, or sends their waiting messages.

const keyOf = key => `arbe:${globalThis.document?.querySelector('[data-me]')?.dataset.me}:${key}`

const kept = storage => ({
  get: key => { try { return JSON.parse(globalThis[storage].getItem(keyOf(key))) } catch { return null } },
  set: (key, value) => {
    try {
      if (value == null || value.length === 0) globalThis[storage].removeItem(keyOf(key))
      else globalThis[storage].setItem(keyOf(key), JSON.stringify(value))
    } catch { /* see above */ }
  },
})

export const store = kept('localStorage')
export const session = kept('sessionStorage')
