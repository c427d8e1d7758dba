import { useEffect, useRef } from 'preact/hooks';
import { Notice } from './notice';

/** A native confirmation dialog before destructive actions. */
export function Confirm(props: {
  open: boolean;
  title: string;
  text: string;
  action: string;
  error: string | null;
  onYes: () => void;
  onNo: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const d = dialog.current;
    if (props.open && d && !d.open) d.showModal();
    if (!props.open && d?.open) d.close();
  }, [props.open]);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={props.onNo}>
      <h2 id="confirm-title">{props.title}</h2>
      <p>{props.text}</p>
      {props.error && <Notice bad>{props.error}</Notice>}
      <div class="dialog-actions">
        <button type="button" class="btn" onClick={props.onNo}>
          Keep
        </button>
        <button type="button" class="btn danger" onClick={props.onYes}>
          {props.action}
        </button>
      </div>
    </dialog>
  );
}
