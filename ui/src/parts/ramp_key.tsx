import { useEffect, useRef } from 'preact/hooks';
import { ramp } from '../core/ramp';
import { rampName } from '../state/settings';

/** The legend of a colour scale: the ramp with its two ends. */
export function RampKey({ lo, hi, label }: { lo: string; hi: string; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const name = rampName.value;
  useEffect(() => {
    const g = canvas.current?.getContext('2d');
    if (!g) return;
    const image = g.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(ramp(name));
    g.putImageData(image, 0, 0);
  }, [name]);
  return (
    <span class="ramp">
      <span>{label}</span>
      <span class="num">{lo}</span>
      <canvas ref={canvas} width={256} height={1} />
      <span class="num">{hi}</span>
    </span>
  );
}
