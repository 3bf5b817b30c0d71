# tries: names files so that they lead out, lie or do something to a terminal
# stopped by: judge
# with: {"collect": ["**/*"]}

for name in ("\x1b[2J\x1b]0;x\x07", "a\nb", "..\\..\\x", "-rf", "con:", "%2e%2e%2f", "\u202egpj.exe", "x" * 255, " ", "{id}", "<script>", '"'):
    try:
        open(os.path.join("/data", name), "w").close()
    except OSError:
        pass
os.makedirs("/data/.../..../x", exist_ok=True)
