# Homebrew formula: brew install --build-from-source packaging/perjoule.rb
class Perjoule < Formula
  desc "Energy profiler for transformer inference"
  homepage "https://example.org/perjoule"
  url "file://#{File.expand_path("../dist/perjoule-0.1.0.tar.xz", __dir__)}"
  version "0.1.0"
  license "Apache-2.0"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "node" => :build
  depends_on "pkgconf" => :build
  depends_on "brotli" => :build
  depends_on "jansson"
  depends_on "libmicrohttpd"
  depends_on "libplist"
  depends_on "pcre2"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "wslay"

  def install
    system "meson", "setup", "build", "-Dtests=disabled", *std_meson_args
    system "meson", "compile", "-C", "build"
    system "meson", "install", "-C", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/perjoule --version")
    assert_match "token_ids", shell_output("#{bin}/perjoule run --json --no-store --power none -n 4 Hello")
  end
end
