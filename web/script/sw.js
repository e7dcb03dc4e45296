// The service worker: it shows what the server pushes, also while no page is open. It keeps nothing and answers no requests.

self.addEventListener('push', event => {
  let message = {}
  try { message = event.data.json() } catch { /* a browser wants to see a notification for every message */ }
  event.waitUntil(self.registration.showNotification(message.title || 'arbe', {
    body: message.body || '', tag: message.tag || 'arbe', renotify: true, data: message.url || '/',
  }))
})

// A click shows the page that it is about: the open one, or a new one.
self.addEventListener('notificationclick', event => {
  event.notification.close()
  const url = new URL(event.notification.data, location.origin)
  if (url.origin !== location.origin) return
  event.waitUntil(self.clients.matchAll({ type: 'window', includeUncontrolled: true }).then(pages => {
    const open = pages.find(page => new URL(page.url).pathname === url.pathname)
    return open ? open.focus() : self.clients.openWindow(url.href)
  }))
})
