// Menus are native `details`, which close by nothing but their button: here also by Escape, which returns to
// that button, and by a press elsewhere.

const openMenus = (): HTMLDetailsElement[] => [
  ...document.querySelectorAll<HTMLDetailsElement>('details.menu[open]'),
];

/** Closes what is open; false: nothing was. */
export function closeMenus(): boolean {
  const open = openMenus();
  for (const menu of open) {
    const within = menu.contains(document.activeElement);
    menu.open = false;
    if (within) menu.querySelector('summary')?.focus();
  }
  return open.length > 0;
}

export function startMenus(): () => void {
  const press = (e: Event) => {
    for (const menu of openMenus()) if (!menu.contains(e.target as Node)) menu.open = false;
  };
  addEventListener('pointerdown', press);
  return () => removeEventListener('pointerdown', press);
}
