// Asks once for the server's token and exchanges it for an HttpOnly session cookie.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { signedOut, signIn } from '../api/client';
import { capital } from '../core/format';
import { Notice } from './notice';

const typed = signal('');
const error = signal<string | null>(null);

export function SignIn() {
  const dialog = useRef<HTMLDialogElement>(null);
  const wanted = signedOut.value;
  useEffect(() => {
    const d = dialog.current;
    if (wanted && d && !d.open) d.showModal();
    if (!wanted && d?.open) d.close();
  }, [wanted]);
  const send = async () => {
    error.value = null;
    try {
      await signIn(typed.value.trim());
      typed.value = '';
      // Repeats all rejected requests.
      location.reload();
    } catch (e) {
      error.value = capital(e instanceof Error ? e.message : String(e));
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby="sign-in-title" onCancel={(e) => e.preventDefault()}>
      {wanted && <Form send={send} />}
    </dialog>
  );
}

function Form({ send }: { send: () => Promise<void> }) {
  return (
    <>
      <h2 id="sign-in-title">This server asks for its token</h2>
      <p class="note">
        It was started with <code>--token</code>. The token is asked for once in this browser
        session.
      </p>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <label class="field">
          <span>Token</span>
          <input
            class="input"
            type="password"
            name="token"
            autoComplete="current-password"
            required
            value={typed.value}
            onInput={(e) => {
              typed.value = e.currentTarget.value;
            }}
          />
        </label>
        {error.value && <Notice bad>{error.value}</Notice>}
        <div class="dialog-actions">
          <button type="submit" class="btn primary">
            Sign in
          </button>
        </div>
      </form>
    </>
  );
}
