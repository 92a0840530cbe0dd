// Generated from the API's own document by `make web-types`. Do not edit.

/** The problem and the next step, by cause or by code. */
export const FAILURES: Record<string, { happened: string; next: string; again: boolean }> = {
  no_key: {"happened": "There is no key for {provider}.", "next": "Set {key} in clew's environment and restart it, or choose another model.", "again": false},
  key_refused: {"happened": "{provider} refused the key.", "next": "Check the key and its permissions, or choose another model.", "again": false},
  no_credit: {"happened": "The {provider} account is out of credit or has reached its limit.", "next": "Check its credit and limits, or choose another model.", "again": false},
  rate_limit: {"happened": "{provider} is limiting requests.", "next": "Wait a moment and try again, or choose another model.", "again": true},
  provider_down: {"happened": "{provider} has an outage or an internal error.", "next": "Try again later, or choose another model.", "again": true},
  unreachable: {"happened": "{provider} could not be reached.", "next": "Check clew's network connection, then try again.", "again": true},
  broken_off: {"happened": "The response from {provider} was cut off.", "next": "The part that arrived is saved; continue from there.", "again": true},
  too_large: {"happened": "The request is too large for the model.", "next": "Compact the conversation, prune its tool outputs, send less, choose a model with a larger context window, branch from a later message, or start a new session.", "again": false},
  no_model: {"happened": "{provider} has no model with that name.", "next": "Choose another model.", "again": false},
  request_refused: {"happened": "{provider} rejected the request.", "next": "Change the request or choose another model; the details say why.", "again": false},
  not_installed: {"happened": "The package for {provider} is not installed.", "next": "Install the clew extra named in the details, then restart clew.", "again": false},
  unknown: {"happened": "The model could not answer.", "next": "Try again, or choose another model.", "again": true},
  model_failed: {"happened": "The model could not answer.", "next": "Try again, or choose another model.", "again": true},
  context_too_large: {"happened": "The conversation does not fit the model’s context window.", "next": "Compact the conversation, prune its tool outputs, send less, choose a model with a larger context window, branch from a later message, or start a new session.", "again": false},
  compaction_failed: {"happened": "The earlier turns could not be summarised.", "next": "Try again, or choose another model.", "again": true},
  interrupted: {"happened": "Interrupted: the server stopped during this response.", "next": "The text so far is saved; continue from there.", "again": true},
  storage_full: {"happened": "The disk that holds the sessions is full.", "next": "Free some disk space, then try again.", "again": true},
  store_unavailable: {"happened": "The session store cannot be reached.", "next": "Check that it is available, then try again.", "again": true},
  store_gone: {"happened": "The session store is gone.", "next": "Restore it, then restart the server.", "again": false},
  store_busy: {"happened": "Another program is using the session store.", "next": "Try again in a moment.", "again": true},
  replica_away: {"happened": "This server is not accepting work right now.", "next": "Try again in a moment.", "again": true},
  internal_error: {"happened": "Something went wrong in the server.", "next": "Try again; if it keeps failing, see the server’s log.", "again": true},
};
