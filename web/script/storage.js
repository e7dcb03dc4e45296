// What survives a reload. Storage may be full, or the browser may forbid it. Then drafts are lost with the page, and the page
// opens at the end.

const kept = (storage, prefix) => ({
  get: key => { try { return JSON.parse(globalThis[storage].getItem(prefix + key)) } catch { return null } },
  set: (key, value) => {
    try {
      if (value == null || value.length === 0) globalThis[storage].removeItem(prefix + key)
      else globalThis[storage].setItem(prefix + key, JSON.stringify(value))
    } catch { /* see above */ }
  },
})

export const store = kept('localStorage', 'arbe:')
export const session = kept('sessionStorage', 'arbe:')
