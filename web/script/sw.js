// The service worker: it shows what the server pushes, also while no page is open. It keeps nothing and answers no requests.

self.addEventListener('push', event => {
  let message = {}
  try { message = event.data.json() } catch { /* a browser wants to see a notification for every message */ }
  event.waitUntil(self.registration.showNotification(message.title || 'arbe', {
    body: message.body || '', tag: message.tag || 'arbe', renotify: true, data: message.url || '/',
  }))
})

// A click shows what it is about, in the tab of that thread if there is one, and otherwise in a new one.
self.addEventListener('notificationclick', event => {
  event.notification.close()
  const url = new URL(event.notification.data, location.origin)
  if (url.origin !== location.origin) return
  event.waitUntil(show(url))
})

async function show(url) {
  const pages = await self.clients.matchAll({ type: 'window', includeUncontrolled: true }) // the last one used is the first
  const open = pages.find(page => new URL(page.url).pathname === url.pathname)
  if (!open) return self.clients.openWindow(url.href)
  open.postMessage({ show: url.href }) // push.js goes to the entry
  return open.focus()
}
