// What HTML attributes cannot express. The page works without this script. Each topic is a module; they are bundled into
// static/arbe.js (make generate), so that a page needs one request for all of them.

import './composer.js'
import './answers.js'
import './live.js'
import './actions.js'
import './reading.js'
import './work.js'
import './clocks.js'
import './places.js'
import './mine.js'
import './entries.js'
import './head.js'
import './keys.js'
import './palette.js'
import './remarks.js'
import './revise.js'
import './reactions.js'
