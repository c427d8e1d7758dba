// A ring buffer of the last `capacity` rows of several columns. Its storage is twice the capacity,
// so that the visible window is always one contiguous subarray; rows are moved only once every
// `capacity` appends.

export class Ring {
  readonly columns: Float64Array[];
  private head = 0;
  private used = 0;
  /** Rows ever appended; the absolute index of the next one. Decimation is anchored to it. */
  total = 0;

  constructor(
    readonly capacity: number,
    width: number,
  ) {
    this.columns = Array.from({ length: width }, () => new Float64Array(capacity * 2));
  }

  get length(): number {
    return this.used;
  }

  /** Absolute index of the oldest row kept. */
  get first(): number {
    return this.total - this.used;
  }

  push(row: ArrayLike<number>): void {
    if (this.head === this.capacity * 2) {
      for (const c of this.columns) c.copyWithin(0, this.capacity, this.capacity * 2);
      this.head = this.capacity;
    }
    for (let i = 0; i < this.columns.length; i++) this.columns[i][this.head] = row[i];
    this.head++;
    this.total++;
    if (this.used < this.capacity) this.used++;
  }

  view(column: number): Float64Array {
    return this.columns[column].subarray(this.head - this.used, this.head);
  }

  last(column: number): number {
    return this.used ? this.columns[column][this.head - 1] : Number.NaN;
  }

  clear(): void {
    this.head = this.used = this.total = 0;
  }
}

/** First index of the ascending array whose value is >= x. */
export function lowerBound(a: ArrayLike<number>, x: number): number {
  let lo = 0;
  let hi = a.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (a[mid] < x) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
