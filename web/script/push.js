// Notifications on this device. The button of /notifications asks the browser for permission, and tells the server the address of
// the browser's push service. sw.js shows the notifications. When one is clicked, it tells a page which entry to show.

import { $, post, unreachable } from './dom.js'

navigator.serviceWorker?.addEventListener('message', event => {
  if (!event.data?.show) return
  const url = new URL(event.data.show)
  const entry = url.pathname === location.pathname && url.hash && document.getElementById(url.hash.slice(1))
  if (!entry) location.assign(url) // drafts survive that
  else if (location.hash === url.hash) entry.scrollIntoView({ block: 'center' })
  else location.hash = url.hash
})

const panel = $('#push')

// subscribed returns this browser's subscription for the server's key. One for another key is replaced, because it is useless.
async function subscribed(worker, key) {
  const old = await worker.pushManager.getSubscription()
  const bytes = old?.options.applicationServerKey
  const oldKey = bytes && btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
  if (old && oldKey === key) return old
  await old?.unsubscribe()
  return worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })
}

// turnOn returns why this device cannot be notified, or nothing.
async function turnOn(key) {
  if (!isSecureContext) return 'Browsers show notifications only of pages with https. Ask the operator of this server for it.'
  if (!('serviceWorker' in navigator) || !('PushManager' in globalThis) || !('Notification' in globalThis)) {
    return 'This browser cannot show notifications of this page. On an iPhone or iPad, add the page to the home screen first.'
  }
  if (await Notification.requestPermission() !== 'granted') return 'This browser does not allow notifications of this page. Allow them in its settings, and try again.'
  let subscription
  try {
    await navigator.serviceWorker.register('/sw.js')
    subscription = await subscribed(await navigator.serviceWorker.ready, key)
  } catch (failure) {
    return `This browser does not reach its push service: ${failure.message}`
  }
  const { endpoint, keys } = subscription.toJSON()
  try {
    const answer = await post('/notifications/devices', { endpoint, p256dh: keys.p256dh, auth: keys.auth })
    if (!answer.ok) return await answer.text()
  } catch { return unreachable }
  location.assign('/notifications')
}

if (panel) {
  const button = $('button', panel), problem = $('.problem', panel)
  button.addEventListener('click', async () => {
    button.disabled = true
    problem.textContent = ''
    problem.textContent = await turnOn(panel.dataset.key) ?? ''
    button.disabled = false
  })
  // Fill in the browser's time zone, because few people know its name by heart.
  const zone = $('#f-zone')
  if (zone && !zone.value) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? ''
}
